"""The chart's keys about what a platform lets its jobs use: `platform`.

Owns each key, its default and its meaning. Part of `job.chart.values`, which says who
makes files of them. Must not know how the policy is written: that is the chart's.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from elasticdl.job.spec.base import OBJECT_PATTERN, SpecModel

_ObjectName = Annotated[str, Field(pattern=OBJECT_PATTERN)]
# Kinds of volumes that the restricted Pod Security Standard forbids, and two that bring
# what the platform has not listed: a driver's secrets, a copy of another claim.
_VolumeKind = Literal[
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi",
    "ephemeral", "fc", "flexVolume", "gcePersistentDisk", "glusterfs", "hostPath",
    "image", "iscsi", "nfs", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd",
    "scaleIO", "storageos", "vsphereVolume",
]  # fmt: skip


class AllowedValues(SpecModel):
    """What pods of jobs may use beyond the platform's own, where it is locked."""

    service_accounts: list[_ObjectName] = Field(
        default_factory=list,
        description="ServiceAccounts, beside both of `serviceAccounts`.",
    )
    secrets: list[_ObjectName] = Field(
        default_factory=list,
        description="Secrets, beside the job's own token: those of data, and those "
        "that images are pulled with.",
    )
    claims: list[_ObjectName] = Field(
        default_factory=list,
        description="PersistentVolumeClaims, beside those of `claims`.",
    )
    priority_classes: list[_ObjectName] = Field(
        default_factory=list,
        description="PriorityClasses, beside both of `priorityClasses`.",
    )
    volumes: list[_VolumeKind] = Field(
        default_factory=list,
        description="Kinds of volumes, as `nfs` or `hostPath`, beside claims, "
        "ConfigMaps, Secrets, `downwardAPI`, `projected` and `emptyDir`.",
    )


class PlatformValues(SpecModel):
    """What a job may need from its namespace."""

    locked: bool = Field(
        False,
        description="Refuse pods of jobs that use what is not the platform's: other "
        "ServiceAccounts, Secrets, claims and PriorityClasses, host paths, privilege; "
        "and let a master touch its own job alone. A ValidatingAdmissionPolicy, of the "
        "whole cluster, for this namespace: needs Kubernetes 1.30; docs/trust.md.",
    )
    allowed: AllowedValues = Field(
        default_factory=AllowedValues,
        description="What they may use all the same.",
    )
