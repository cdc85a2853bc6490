"""Live edits: which changes of a running job's values file are taken, which refused.

Owns the list of fields that may change, and the poll of a file that users edit. Called
by the loop and by whoever starts it.
`compare` is pure; must not apply anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from elasticdl.errors import SpecError
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.spec.problems import spec_error
from elasticdl.job.values.file import load_values, parse_values

# Edits reach a running job within half a second; a stat of one file costs nothing.
POLL_SECONDS = 0.5

Stamp = tuple[int, int, int]  # time, size and number of a file

# Dotted paths as in the file; a whole subtree counts with its prefix.
LIVE = (
    "paused",
    "training.epochs",
    "log.level",
    "evaluation",
    "alerts",
    "worker.replicas",
    "worker.min",
    "worker.max",
    "worker.elastic",
)
# What the values file alone may say: section and key.
OF_THE_FILE = (
    ("", "onEnd"),
    ("", "env"),
    ("checkpoint", "dir"),
    ("ps", "env"),
    ("ps", "priority"),
    ("worker", "env"),
    ("worker", "priority"),
)


def change_words(path: str, old: Any, new: Any) -> str:
    """Return what an edit does to a field; a value that is not there is `none`."""
    before, after = ("none" if value is None else value for value in (old, new))
    return f"{path}: {before} -> {after}"


@dataclass(frozen=True)
class FieldChange:
    """One field of an edit: its old and its new value."""

    path: str
    old: Any
    new: Any

    def __str__(self) -> str:
        """`worker.replicas: 3 -> 5`."""
        return change_words(self.path, self.old, self.new)


@dataclass(frozen=True)
class Edit:
    """What an edit of the file changes, and what is refused."""

    spec: JobSpec  # the old one with the accepted changes
    accepted: tuple[FieldChange, ...]
    refused: tuple[FieldChange, ...]


def compare(old: JobSpec, new: JobSpec) -> Edit:
    """Return which changes apply to a running job and which are refused."""
    before = old.model_dump(mode="json", by_alias=True)
    after = new.model_dump(mode="json", by_alias=True)
    changes = list(_changes(before, after))
    spec = old
    accepted: list[FieldChange] = []
    # A section at a time: what fits the refused changes alone does not fit without.
    live = [change for change in changes if is_live(change.path)]
    for _, section in itertools.groupby(live, lambda c: c.path.partition(".")[0]):
        of_section = list(section)
        with contextlib.suppress(ValidationError):
            spec = _with(spec, of_section)
            accepted += of_section
    refused = tuple(change for change in changes if change not in accepted)
    return Edit(spec, tuple(accepted), refused)


def _with(spec: JobSpec, changes: Iterable[FieldChange]) -> JobSpec:
    """Return a specification with changes. Raises ValidationError."""
    # What nobody wrote stays unwritten: a section may be refused where it is written.
    tree = spec.document()
    for change in changes:
        _set(tree, change.path, change.new)
    return JobSpec.model_validate(tree)


def by_the_file(noted: JobSpec, told: JobSpec | None) -> JobSpec:
    """Return a noted specification with what the values file alone may say.

    Workers can write the folder that it was noted in: what a master runs, where it
    writes and deletes, and what pods are given beside a number, is not taken from
    there. Without a file (`told`) nothing is run, checkpoints are in the job's folder,
    and pods have what their templates say.
    """
    tree, said = noted.document(), told.document() if told else {}
    for section, key in OF_THE_FILE:
        kept = {**(tree.pop(section, {}) if section else tree)}
        kept.pop(key, None)
        there = said.get(section, {}) if section else said
        kept |= {key: there[key]} if key in there else {}
        if not section:
            tree = kept
        elif kept:  # a section may be refused where it is written
            tree[section] = kept
    return JobSpec.model_validate(tree)


def too_late(old: JobSpec, edit: Edit) -> Edit:
    """Return the edit of a job that is over: all of its changes are refused."""
    changes = sorted((*edit.accepted, *edit.refused), key=lambda change: change.path)
    return Edit(old, (), tuple(changes))


def is_live(path: str) -> bool:
    """Whether the field may change while a job runs."""
    return any(path == live or path.startswith(live + ".") for live in LIVE)


def _changes(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> list[FieldChange]:
    found: list[FieldChange] = []
    for key in sorted({*old, *new}):
        path = f"{prefix}{key}"
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += _changes(before, after, f"{path}.")
        elif before != after and _written(before) != _written(after):
            found.append(FieldChange(path, before, after))
    return found


def _written(value: Any) -> str:
    """Return a value as it is written: a .nan, as of a model's params, equals none."""
    return json.dumps(value, sort_keys=True)


def _set(tree: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for key in parents:
        tree = tree.setdefault(key, {})
    tree[last] = value


async def watch(
    path: Path, *, seen: Stamp | None
) -> AsyncIterator[JobSpec | SpecError]:
    """Yield the job in the file, or why it is unreadable, at each change of the file.

    `seen`: the file's stamp from before the caller read it, so that no edit of since
    then is lost, however long the caller took; None is as it is now.

    Polls the time stamp: a claim mounted from a ConfigMap or a network file system
    sends no events.
    """
    loop = asyncio.get_running_loop()
    seen = seen or stamp(path)
    while True:
        await asyncio.sleep(POLL_SECONDS)
        now = await loop.run_in_executor(None, stamp, path)
        if now == seen or now is None:
            continue
        seen = now
        yield await loop.run_in_executor(None, _load, path)


def stamp(path: Path) -> Stamp | None:
    """Return a mark that differs after each edit; None during a replacement."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def parse(text: str, source: str) -> JobSpec | SpecError:
    """Return the job in a values file's text, or why it is unreadable."""
    values, problems = parse_values(text, source=source)
    return values.job if values is not None else spec_error(problems)


def _load(path: Path) -> JobSpec | SpecError:
    try:
        return load_values(path).job
    except SpecError as error:
        return error
