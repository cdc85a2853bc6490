"""The chart's keys of a site: proxies and a CA bundle of its own.

Owns each key, its default and its meaning. Used by `job.chart.values`. Must not know
how the templates use them.
"""

from __future__ import annotations

from pydantic import Field

from elasticdl.job.spec.base import OBJECT_OR_NONE_PATTERN, SpecModel


class ProxyValues(SpecModel):
    """The proxies of a site, set as environment variables in upper and lower case."""

    http: str = Field(
        "", pattern=r"^\S*$", description="`HTTP_PROXY`; empty sets none."
    )
    https: str = Field(
        "", pattern=r"^\S*$", description="`HTTPS_PROXY`; empty sets none."
    )
    none: list[str] = Field(
        default_factory=list,
        description="`NO_PROXY`: hosts, domains and networks that are reached without "
        "a proxy. The cluster's own are among them: loopback, `.svc`, "
        "`.cluster.local` and the API server.",
    )


class CaBundleValues(SpecModel):
    """The certificate authorities that the user's code trusts."""

    config_map: str = Field(
        "",
        pattern=OBJECT_OR_NONE_PATTERN,
        description="ConfigMap in the job's namespace that holds all of them, the "
        "public ones too, in PEM: it takes the place of the image's. Appears in "
        "`/etc/elasticdl-ca`; OpenSSL, requests, curl, AWS's libraries and git are "
        "told of it by environment. Empty is the image's own.",
    )
    key: str = Field("ca.crt", pattern="^[-._A-Za-z0-9]+$", description="Key in it.")
