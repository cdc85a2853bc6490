"""A volume of a job's pods: where it comes from, and where it may appear.

Owns the folders that a volume must not hide. Used by the specification of a job. Must
not know what is kept in it.
"""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from elasticdl.job.spec.base import OBJECT_OR_NONE_PATTERN, PATH_PATTERN, SpecModel
from elasticdl.job.spec.problems import Problem, ProblemsError

# What a container begins with: a volume in its place hides the program itself.
_PROGRAMS = (
    "", "/bin", "/dev", "/etc", "/lib", "/lib64", "/opt", "/opt/elasticdl", "/proc",
    "/sbin", "/sys", "/usr",
)  # fmt: skip


class VolumeSpec(SpecModel):
    """One volume, mounted in all pods."""

    claim_name: str = Field(
        "", pattern=OBJECT_OR_NONE_PATTERN, description="PersistentVolumeClaim."
    )
    host_path: str = Field(
        "", pattern="^(/.*)?$", description="Folder of the node, where allowed."
    )
    mount_path: str = Field(pattern=PATH_PATTERN, description="Where it appears.")
    sub_path: str = Field("", description="Folder inside the volume.")
    type: str = Field("", description="Kind of host path, as `Directory`.")

    @field_validator("mount_path")
    @classmethod
    def _hides_no_program(cls, value: str) -> str:
        path = value.rstrip("/")
        # Another way to write `/etc` is `//etc`, or `/./etc`.
        roundabout = {"", ".", ".."} & set(path.split("/")[1:])
        if path in _PROGRAMS or roundabout or ":" in path:
            expected = "a folder that the container can do without"
            help_ = "the container's own files are there; choose another"
            raise ProblemsError(Problem("", value, expected, help_))
        return value

    @model_validator(mode="after")
    def _one_source(self) -> VolumeSpec:
        if bool(self.claim_name) == bool(self.host_path):
            raise ProblemsError(
                Problem(
                    "",
                    "both" if self.claim_name else "neither of them",
                    "exactly one of `claimName` and `hostPath`",
                    "name where the volume comes from",
                )
            )
        return self
