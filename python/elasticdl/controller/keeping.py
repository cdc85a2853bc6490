"""What is kept of jobs' ConfigMaps: what is needed, and of one namespace so much.

Owns both. Asked by `controller.watching` for each ConfigMap that comes. Pure. Whoever
may write one may write hundreds, of a megabyte each, and the memory is everybody's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from elasticdl.controller.jobs import TEXTS, is_job
from elasticdl.job import names
from elasticdl.job.values.bounded import MOST_CHARACTERS
from elasticdl.planner.view import JobKey

Json = dict[str, Any]
# A job's texts are some seven thousand characters: those of two thousand jobs.
MOST_OF_NAMESPACE = 32 * MOST_CHARACTERS
# A grant names those who leave, some characters each.
_LONGEST_NOTE = 64 * 1024
_ABOUT = ("name", "namespace", "uid", "creationTimestamp")
_NOTES = (names.ANNOTATION_STOP, names.ANNOTATION_WORKERS)


class Keeping:
    """Sums up what is kept of one namespace."""

    def __init__(self, kept: Mapping[str, int] | None = None) -> None:
        """Begin with the characters that are kept already, by the ConfigMap's name."""
        self._kept = dict(kept or {})
        self._held = sum(self._kept.values())

    def lean(self, item: Json) -> Json:
        """Return what is kept of a ConfigMap: of a job all that is read of one.

        `refused` says why its texts are not.
        """
        about = item["metadata"]
        self._held -= self._kept.pop(about["name"], 0)
        notes, labels = about.get("annotations") or {}, about.get("labels") or {}
        kept: Json = {
            "metadata": {
                **{key: about[key] for key in _ABOUT if key in about},
                "labels": {k: v for k, v in labels.items() if k == names.LABEL_JOB},
                "annotations": {
                    key: notes[key]
                    for key in _NOTES
                    if len(notes.get(key, "")) <= _LONGEST_NOTE and key in notes
                },
            }
        }
        if not is_job(item):
            return kept
        data = {key: text for key, text in item["data"].items() if key in TEXTS}
        length = sum(map(len, data.values()))
        waits = 0
        if length > MOST_CHARACTERS:
            why = f"its texts have {length} characters, more than {MOST_CHARACTERS}"
        elif self._held + length > MOST_OF_NAMESPACE:
            waits = length
            why = (
                "the texts of its namespace's jobs have more than "
                f"{MOST_OF_NAMESPACE} characters together"
            )
        else:
            self._held += length
            return {**kept, "data": data}
        return {**kept, "data": {names.KEY_JOB: ""}, "refused": why, "waits": waits}


def length_of(item: Json) -> int:
    """Return how many characters of a ConfigMap are kept."""
    return sum(map(len, item["data"].values()))


class KeptJobs:
    """The ConfigMaps of jobs that are kept, by job, and how long they are together."""

    def __init__(self) -> None:
        """Begin with none."""
        self._items: dict[JobKey, Json] = {}
        # By namespace and by the ConfigMap's name: of each, and of those that wait.
        self._lengths: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._waits: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def __iter__(self) -> Iterator[JobKey]:
        """Yield the jobs."""
        return iter(self._items)

    def __contains__(self, key: JobKey) -> bool:
        """Return whether anything of a job is kept."""
        return key in self._items

    def items(self) -> Iterable[tuple[JobKey, Json]]:
        """Return the jobs and their ConfigMaps."""
        return self._items.items()

    def get(self, key: JobKey) -> Json | None:
        """Return the ConfigMap of a job."""
        return self._items.get(key)

    def put(self, key: JobKey, item: Json) -> None:
        """Keep a lean ConfigMap."""
        self._uncount(key)
        self._items[key] = item  # one that was kept stays where it was: order is news
        name = item["metadata"]["name"]
        self._lengths[key.namespace][name] = length_of(item)
        if waits := item.get("waits", 0):
            self._waits[key.namespace][name] = waits

    def drop(self, key: JobKey) -> None:
        """Drop the ConfigMap of a job."""
        self._uncount(key)
        self._items.pop(key, None)

    def _uncount(self, key: JobKey) -> None:
        if item := self._items.get(key):
            for kept in (self._lengths, self._waits):
                kept[key.namespace].pop(item["metadata"]["name"], None)

    def keeping(self, namespace: str) -> Keeping:
        """Begin with what is kept: one job takes no room that another one has."""
        return Keeping(self._lengths[namespace])

    def has_room(self, namespace: str) -> bool:
        """Return whether there is room by now for one of which no text is kept."""
        waits = self._waits[namespace]
        held = sum(self._lengths[namespace].values())
        return bool(waits) and held + min(waits.values()) <= MOST_OF_NAMESPACE
