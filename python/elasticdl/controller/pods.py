"""The pods of a cluster, and what is asked of all of them each few seconds.

Owns the copy of them by uid, and that what follows from all is found again only after
one has changed: a cluster has thousands, and at rest none changes. Made by
`controller.watching`. Must not know where they are read from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from elasticdl.job.names import Role
from elasticdl.planner.view import JobKey, Pod


class Pods:
    """Pods that have not ended, by uid."""

    def __init__(self) -> None:
        """Begin with none."""
        self._by_uid: dict[str, Pod] = {}
        self._with_master: frozenset[JobKey] | None = None
        self._workers: Mapping[JobKey, int] | None = None

    def __iter__(self) -> Iterator[Pod]:
        """Yield them in the order in which they were seen first."""
        return iter(self._by_uid.values())

    def put(self, uid: str, pod: Pod) -> bool:
        """Keep a pod; return whether that is news."""
        if self._by_uid.get(uid) == pod:
            return False
        self._by_uid[uid] = pod
        self._changed()
        return True

    def drop(self, uid: str) -> Pod | None:
        """Drop a pod, and return it."""
        pod = self._by_uid.pop(uid, None)
        if pod is not None:
            self._changed()
        return pod

    def clear(self) -> None:
        """Drop all."""
        self._by_uid.clear()
        self._changed()

    def _changed(self) -> None:
        self._with_master = self._workers = None

    @property
    def with_master(self) -> frozenset[JobKey]:
        """The jobs that have a master's pod."""
        if self._with_master is None:
            masters = (pod.of for pod in self if pod.role is Role.MASTER)
            self._with_master = frozenset(key for key in masters if key)
        return self._with_master

    @property
    def workers(self) -> Mapping[JobKey, int]:
        """How many workers a job has that are not leaving; 0 for any other key."""
        if self._workers is None:
            self._workers = Counter(
                pod.of
                for pod in self
                if pod.role is Role.WORKER and not pod.leaving and pod.of
            )
        return self._workers
