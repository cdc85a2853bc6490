"""The chart's keys of images and of the volume of a job's folder.

Owns each key, its default and its meaning. Used by `job.chart.values` and by
`job.chart.defaults`. Must not know how the templates use them.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from elasticdl.job.spec.base import (
    OBJECT_PATTERN,
    PATH_PATTERN,
    SUB_PATH_PATTERN,
    SpecModel,
)
from elasticdl.job.spec.problems import Problem, ProblemsError

ObjectName = Annotated[str, Field(pattern=OBJECT_PATTERN)]
_Digest = Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")]


class DigestsValues(SpecModel):
    """Digests of the stock images, `sha256:...`."""

    master: _Digest = Field("", description="Of the master's; empty goes by the tag.")
    ps: _Digest = Field("", description="Of the PS's.")
    worker: _Digest = Field("", description="Of the workers'.")


class ImagesValues(SpecModel):
    """The stock images; `job.image` and `job.<role>.image` take precedence."""

    registry: str = Field(
        "",
        pattern=r"^(([A-Za-z0-9][-A-Za-z0-9.]*|\[[0-9A-Fa-f:]+\])(:[0-9]+)?"
        r"(/[-a-z0-9._]+)*/?)?$",
        description="Registry, and folders in it, put before the names below with a "
        "slash, as `registry.example:5000/team`; `localhost` for images that the nodes "
        "have already. There is no default: a release that needs a stock image is "
        "refused without it. What the platform says here is for its jobs too.",
    )
    tag: str = Field(
        "",
        pattern=r"^([A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?$",
        description="Tag of all three; empty is the chart's `appVersion`.",
    )
    digests: DigestsValues = Field(
        default_factory=DigestsValues,
        description="Digests of the images: what runs is that, whatever the tag means.",
    )
    master: str = Field("elasticdl/master", description="Name of the master's image.")
    ps: str = Field("elasticdl/ps", description="Name of the PS's image.")
    worker: str = Field("elasticdl/worker", description="Name of the workers' image.")
    pull_secrets: list[ObjectName] = Field(
        default_factory=list,
        description="Names of Secrets in the job's namespace with which images are "
        "pulled.",
    )


# What a container has there already, and cannot start without.
_WITH_FILES = ("/", "/opt", "/opt/elasticdl", "/home", "/root", "/run", "/var")
_WITH_FILES_BELOW = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/tmp",
    "/usr",
)  # fmt: skip


class StateValues(SpecModel):
    """The volume of the job's folder (journal, checkpoints) and usually its data."""

    claim_name: str = Field(
        "fileserver-claim",
        pattern=OBJECT_PATTERN,
        description="PersistentVolumeClaim in the job's namespace. All pods of the job "
        "mount it, so on several nodes it has to be ReadWriteMany.",
    )
    mount_path: str = Field(
        "/data",
        pattern=PATH_PATTERN,
        description="Where it appears, and the folder that all roles start in: "
        "relative paths of the job begin here. An entry of `job.volumes` on this path "
        "takes the claim's place.",
    )

    @field_validator("mount_path")
    @classmethod
    def _is_a_folder_of_its_own(cls, value: str) -> str:
        root = value.rstrip("/") or "/"
        first = "/" + root.split("/")[1]
        outside = {".", ".."} & set(root.split("/")) or "//" in root or ":" in root
        if root in _WITH_FILES or first in _WITH_FILES_BELOW or outside:
            raise ProblemsError(
                Problem(
                    "",
                    value,
                    "a folder of its own, as /data",
                    "the container's own files are there; choose another",
                )
            )
        return value

    sub_path: str = Field(
        "",
        pattern=SUB_PATH_PATTERN,
        description="Folder of the claim that appears there instead of its root, for "
        "all roles: the job sees nothing above it, data and jobs of others included. "
        "It has to be writable for the pods' user.",
    )
    hide_other_jobs: bool = Field(
        True,
        description="Workers and PS see no other job's folder (`.elasticdl/jobs`), "
        "only their own, mounted as a `subPath`, and those that the job's values name: "
        "to read (as `checkpoint.initFrom`), or to write (as `export.dir`). Data and "
        "all else of the claim stays as it is. false for a claim whose driver does not "
        "know `subPath`.",
    )
