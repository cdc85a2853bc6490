"""One TrainingJob as the API server has it, and what was made of it.

Owns the reading of both. Made by `training_jobs.watching`; everything else of the
package gets it. Must not know what a specification means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticdl.job.names import LABEL_JOB
from elasticdl.job.values.training_job import API_VERSION, KIND
from elasticdl.job.words import JobState

Json = dict[str, Any]
_OVER = tuple(state for state in JobState if state.ended)


@dataclass(frozen=True)
class Made:
    """What was made of a TrainingJob, and of which specification.

    Kept in its status, where the next controller finds it.
    """

    run: int = 0
    whole: str = ""  # digest of the specification
    fixed: str = ""  # digest of what may not change while the job runs
    objects: tuple[str, ...] = ()  # as `batch/v1/jobs/elasticdl-x-master`

    @staticmethod
    def of(status: Mapping[str, Any]) -> Made:
        """Return what a status says of it; nothing where it says none."""
        made = status.get("made") or {}
        return Made(
            run=int(made.get("run") or 0),
            whole=str(made.get("whole") or ""),
            fixed=str(made.get("fixed") or ""),
            objects=tuple(map(str, made.get("objects") or ())),
        )

    def document(self) -> Json:
        """Return it for a status."""
        return {
            "run": self.run,
            "whole": self.whole,
            "fixed": self.fixed,
            "objects": list(self.objects),
        }


@dataclass(frozen=True)
class TrainingJob:
    """One TrainingJob."""

    name: str
    namespace: str
    uid: str
    version: str  # changes with each write
    generation: int
    leaving: bool  # it is being deleted
    manifest: Json = field(repr=False)
    status: Json = field(repr=False)

    @staticmethod
    def of(item: Json) -> TrainingJob:
        """Return the object of an API server's JSON."""
        about = item["metadata"]
        # An item of a list says neither, which are those of the list.
        manifest = {"apiVersion": API_VERSION, "kind": KIND, **item}
        return TrainingJob(
            name=about["name"],
            namespace=about["namespace"],
            uid=about["uid"],
            version=str(about.get("resourceVersion") or ""),
            generation=int(about.get("generation") or 0),
            leaving="deletionTimestamp" in about,
            manifest=manifest,
            status=item.get("status") or {},
        )

    @property
    def made(self) -> Made:
        """What was made of it."""
        return Made.of(self.status)

    def was_told_ended(self, run: int) -> bool:
        """Whether its status says that this run is over."""
        return self.made.run == run and self.status.get("state") in _OVER

    @property
    def reference(self) -> Json:
        """Return it as the owner of what is made of it.

        It blocks nobody's deletion: the right to that is not needed.
        """
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }


@dataclass(frozen=True)
class Seen:
    """What is there of one job, and what its platform says."""

    config_map: Json | None = None
    status_map: Json | None = None
    masters: Sequence[Json] = ()  # batch Jobs, one for each run
    platform: str = ""  # text of the platform's defaults


def job_of(thing: Mapping[str, Any]) -> str:
    """Return the name of the job that an object is of, by its label."""
    labels = thing.get("metadata", {}).get("labels") or {}
    return str(labels.get(LABEL_JOB, ""))
