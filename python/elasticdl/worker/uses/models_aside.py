"""Models of evaluation rounds on disk, until each is moved to the place it is for.

Owns their names, what tells a round from all others, and the move, which may be done
again whenever it was interrupted. Called by `model_export` for EXPORT tasks. Knows
nothing of values, nor of how a model is written.

    <dir>/.kept-best-<job>-<life>-<n>/    a round's model, for <dir>/best/
    <dir>/.kept-restored-<job>-<life>-<n>/    for <dir>/ itself
    <dir>/[best/].round      the round whose model was moved there
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import CheckpointError
from elasticdl.model.export import FILE_OF, is_written, move

log = logging.getLogger(__name__)

_ASIDE = ".kept-"
_MARK = ".round"
_BEGUN = ".moving"  # beside a model: the files that it had


@dataclass(frozen=True)
class RoundOf:
    """An evaluation round of a job, with what tells it from all others."""

    job: str
    life: int  # when the job's journal began, in ms since 1970
    number: int  # they grow within a life

    @staticmethod
    def of_mark(text: str) -> RoundOf:
        """Return the round of a place's mark. Raises ValueError if it is none."""
        job, life, number = text.split(" ")
        return RoundOf(job, int(life), int(number))

    @property
    def mark(self) -> str:
        """What a place says that has this round's model."""
        return f"{self.job} {self.life} {self.number}"


class Aside:
    """The model of an evaluation round, in a folder beside the place it is for.

    Folders of other jobs in the same directory are left alone.
    """

    def __init__(self, directory: Path, target: str, model: RoundOf) -> None:
        """Take the export's folder, what the model is kept for, and the round."""
        self._directory = directory
        self._target = target
        self._model = model
        stem = f"{_ASIDE}{target}-"
        self.path = directory / f"{stem}{model.job}-{model.life}-{model.number}"
        self._unnamed = directory / f"{stem}{model.number}"  # by an earlier version

    def clear(self, *, but: int = 0) -> None:
        """Remove the models of the job's earlier rounds, but that of `but`."""
        mine = self._model
        for path, life, number in _aside_of(self._directory, mine.job, self._target):
            earlier = (life, number) < (mine.life, mine.number)
            if earlier and (life, number) != (mine.life, but):
                shutil.rmtree(path, ignore_errors=True)

    def move_to(self, place: Path, formats: Sequence[str]) -> list[Path]:
        """Move the model to its place; return its paths there, in these formats.

        May be called again after it was interrupted or done: rounds have growing
        numbers, and a place that has a later one's model is left alone. One of another
        model in a format that this one could not be written in is removed.

        Raises CheckpointError when the disk refuses, or the model is not there.
        """
        mark = place / _MARK
        try:
            place.mkdir(parents=True, exist_ok=True)
            if not self._is_in(mark):
                if not self.path.is_dir():
                    self._take_unnamed(mark)
                self._put(place, formats)
            shutil.rmtree(self.path, ignore_errors=True)
        except OSError as error:
            raise CheckpointError(
                f"the model in {self.path} cannot be moved to {place}: "
                f"{error.strerror or error}; "
                "export.dir has to be one folder for all workers, which they can "
                "write, and of this job alone"
            ) from error
        self.clear()
        # In others, a model of before may lie there.
        written = [place / FILE_OF[name] for name in formats]
        return [path for path in written if path.exists()]

    def _put(self, place: Path, formats: Sequence[str]) -> None:
        """Replace what is in the place by this model, and mark it. Raises OSError."""
        had = self._files()
        for name in formats:
            earlier = place / FILE_OF[name]
            if earlier.exists() and earlier.name not in had:
                earlier.rename(self.path / f"earlier-{earlier.name}")
                log.warning("removed %s, which is of another model", earlier)
        for file in FILE_OF.values():
            if (self.path / file).exists():
                move(self.path / file, place / file, self.path)
        mine = self.path / _MARK
        mine.write_text(self._model.mark)
        mine.replace(place / _MARK)

    def _files(self) -> list[str]:
        """Return which files the model had before any was moved. Raises OSError."""
        note = self.path / _BEGUN
        if not note.exists():
            found = [file for file in FILE_OF.values() if (self.path / file).exists()]
            mine = self.path / f"{_BEGUN}-{uuid.uuid4().hex}"
            mine.write_text("\n".join(found))
            try:
                os.link(mine, note)
            except FileExistsError:
                pass  # of two at once the first one knows
            except OSError:  # a file system without links
                with contextlib.suppress(FileExistsError), note.open("x") as file:
                    file.write(mine.read_text())
        return note.read_text().split("\n")

    def _take_unnamed(self, mark: Path) -> None:
        """Take the model that an earlier version of this job's master had written.

        Raises FileNotFoundError where there is none since the job began.
        """
        with contextlib.suppress(FileNotFoundError):
            if self._unnamed.stat().st_mtime * 1000 >= self._model.life:
                self._unnamed.rename(self.path)
                return
        found = _round_in(mark)
        others = "" if found is None or found.job == self._model.job else found.job
        what = f"in its place is one of job {others}" if others else "nor in its place"
        raise FileNotFoundError(errno.ENOENT, f"the model is not there, {what}")

    def _is_in(self, mark: Path) -> bool:
        """Whether a place has this model, or that of a later round of this life."""
        mine, found = self._model, _round_in(mark)
        if found is None:
            return False
        same = (found.job, found.life) == (mine.job, mine.life)
        return same and found.number >= mine.number


def _round_in(mark: Path) -> RoundOf | None:
    """Return the round that a place's mark tells of; None if it tells of none."""
    try:
        return RoundOf.of_mark(mark.read_text())
    except (OSError, ValueError):
        return None


def clear_left_aside(directory: Path, last: RoundOf) -> None:
    """Remove the models that a job's rounds up to the `last` one have left aside.

    Each is of a round whose master was lost before its journal had it, or of a life of
    the job that it left: nothing moves it any more. One that somebody still writes is
    left to them.
    """
    for path, life, number in _aside_of(directory, last.job, "*"):
        if (life, number) <= (last.life, last.number) and not is_written(path):
            shutil.rmtree(path, ignore_errors=True)


def _aside_of(
    directory: Path, job: str, target: str
) -> Iterator[tuple[Path, int, int]]:
    """Yield each model that a job has aside, its life and round."""
    names = re.compile(rf"{re.escape(_ASIDE)}[a-z]+-{re.escape(job)}-(\d+)-(\d+)")
    for path in directory.glob(f"{_ASIDE}{target}-*"):
        if found := names.fullmatch(path.name):
            yield path, int(found[1]), int(found[2])
