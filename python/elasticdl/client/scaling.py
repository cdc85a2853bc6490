"""What `scale` changes of a running job's specification.

Owns which fields those are, and what came of a change. Called by both kinds of job.
Pure; must not know where a job runs. Bounds are the specification's own: it is
validated as a whole before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.errors import SpecError
from elasticdl.job.spec.job import JobSpec, Strategy


@dataclass(frozen=True)
class Scaling:
    """The wanted size of a running job; None leaves a field unchanged."""

    workers: int | None = None
    min_workers: int | None = None  # 0 is no minimum
    max_workers: int | None = None  # 0 is no maximum
    paused: bool | None = None
    fixed: bool = False  # the range ends at `workers`: no controller decides

    def edits(self, spec: JobSpec) -> Mapping[str, int | bool]:
        """Return the changes to the values file by dotted path; {} for none.

        Raises SpecError when a job of this kind cannot have it.
        """
        self._check(spec)
        least = self.workers if self.fixed else self.min_workers
        most = self.workers if self.fixed else self.max_workers
        wanted = {
            "job.worker.replicas": (self.workers, spec.worker.replicas),
            "job.worker.min": (least, spec.worker.min),
            "job.worker.max": (most, spec.worker.max),
            "job.paused": (self.paused, spec.paused),
        }
        return {
            path: new
            for path, (new, old) in wanted.items()
            if new is not None and new != old
        }

    def _check(self, spec: JobSpec) -> None:
        numbers = (self.workers, self.min_workers, self.max_workers)
        if spec.strategy is Strategy.LOCAL and any(n is not None for n in numbers):
            raise SpecError(
                f"job {spec.name}: got a number of workers, expected none, since "
                "strategy local has one worker, always; submit it with strategy "
                "parameterServer to scale (it may be paused as it is)"
            )
        if self.workers is not None and self.workers < 1:
            raise SpecError(
                f"workers: got {self.workers}, expected 1 or more; to free the workers "
                f"for a while use `elasticdl scale {spec.name} --pause`, to end the "
                f"job `elasticdl stop {spec.name}`"
            )


@dataclass(frozen=True)
class Scaled:
    """A job's specification before and after a change; equal if nothing changed."""

    before: JobSpec
    after: JobSpec
    by_argo_cd: bool = False  # which takes back what its repository does not say
