"""The chart's keys of encrypted calls: whose certificates, and for how long.

Owns their defaults and meanings; a section of `job.chart.values`. Must not know how
certificates are made.
"""

from __future__ import annotations

from pydantic import Field

from elasticdl.job.context import CERTIFICATE_HOURS
from elasticdl.job.spec.base import OBJECT_OR_NONE_PATTERN, SpecModel
from elasticdl.job.spec.labels import Labels


class CertManagerValues(SpecModel):
    """The issuer of the job's authority, where cert-manager is installed."""

    issuer: str = Field(
        "",
        pattern=OBJECT_OR_NONE_PATTERN,
        description="Name of an Issuer that may sign authorities: the chart makes a "
        "Certificate with `isCA`, whose Secret is this job's authority. Empty: the "
        "chart makes the authority itself.",
    )
    kind: str = Field(
        "Issuer",
        pattern="^(Issuer|ClusterIssuer)$",
        description="Its kind: Issuer or ClusterIssuer.",
    )


class MetricsMonitorValues(SpecModel):
    """A PodMonitor of the job's own, with the authority that it trusts."""

    enabled: bool = Field(
        False,
        description="Make a PodMonitor for this job, with its authority and token; "
        "that of the platform leaves out jobs whose metrics are encrypted.",
    )
    labels: Labels = Field(
        default_factory=dict,
        description="Labels that the operator's `podMonitorSelector` asks for.",
    )
    interval: str = Field(
        "15s", pattern=r"^[0-9]+(ms|s|m)$", description="Time between two scrapes."
    )


class TlsMetricsValues(SpecModel):
    """Metrics over TLS, for readers with a token."""

    enabled: bool = Field(
        False,
        description="Show `/metrics` by TLS alone, with the replica's certificate "
        "(`metrics.JOB.NAMESPACE.elasticdl`), to who brings the key `metrics` of the "
        "token's Secret as a bearer token; probes need none.",
    )
    pod_monitor: MetricsMonitorValues = Field(
        default_factory=MetricsMonitorValues,
        description="What the Prometheus operator scrapes them by.",
    )


class TlsValues(SpecModel):
    """Certificates of the job's roles."""

    enabled: bool = Field(
        True,
        description="Encrypt every call between the job's roles; each shows a "
        "certificate of its role and number, of the job's own authority. `false`: "
        "calls are in the clear, as where a mesh encrypts them.",
    )
    existing_secret: str = Field(
        "",
        pattern=OBJECT_OR_NONE_PATTERN,
        description="Name of a Secret of type kubernetes.io/tls that holds an "
        "authority for this job alone (`tls.crt` with CA:TRUE, `tls.key` of an "
        "elliptic curve). Empty makes one, and keeps it over upgrades; as with "
        "`token.existingSecret` that needs a cluster while the chart is rendered.",
    )
    cert_manager: CertManagerValues = Field(
        default_factory=CertManagerValues, description="cert-manager's, instead."
    )
    metrics: TlsMetricsValues = Field(
        default_factory=TlsMetricsValues,
        description="Of metrics, which are plain HTTP.",
    )
    certificate_hours: float = Field(
        CERTIFICATE_HOURS,
        ge=0.1,
        le=8760,
        description="How long a replica's certificate is good. It is renewed when half "
        "of that is over, without ending a call.",
    )
