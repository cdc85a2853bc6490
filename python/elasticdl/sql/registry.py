"""The registry of models: a folder for each name, in it one for each version.

Owns its layout and the rule that a version is whole or not there: it counts from the
moment it has its model.json, which is written last. Called by `sql.running` and by
`elasticdl models`. Must not know how a model is trained.

    <root>/<name>/<version>/
        statement.sql     what was written, without a password
        job.yaml          the values file of its training
        <module>.py       the Keras module
        model.json        columns, label, schema and split that a prediction needs
        statistics.json   what was computed over training rows
        evaluation.json   the last evaluation's figures
        checkpoints/      the last checkpoint
        export/           the model for serving
        data/             shards and vocabularies; shards of the newest version alone
        .making           is locked by the process that makes it, until it is whole
    <root>/.dropped/<name>@<version>
        says, empty, that the numbers up to this one are used up
    <root>/.answers/<table>-<digits>.parquet
        what a PREDICT answered, where its table could not be written at the end
    <root>/<name>/.runs/<job>/
        a version that a job in a cluster makes: its paths are in the job's values file
        before anybody knows the number, which is then a link to it. It counts once the
        job has exported the model, whether or not somebody waits for the job's end.
"""

from __future__ import annotations

import fcntl
import json
import platform
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from elasticdl.errors import NotFoundError, SpecError
from elasticdl.files import write_whole
from elasticdl.job.spec.problems import did_you_mean
from elasticdl.sql.plan import (
    Column,
    ColumnPlan,
    Head,
    Kind,
    LabelPlan,
    Schema,
    Statistics,
    Stored,
)

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,98}[A-Za-z0-9_])?")
_MODEL_FILE = "model.json"
RUNS = ".runs"
_MAKING = ".making"
_DROPPED, _ANSWERS = ".dropped", ".answers"


@dataclass(frozen=True)
class ModelVersion:
    """A version in the registry; its files, named in one place."""

    name: str
    version: int
    folder: Path

    @property
    def reference(self) -> str:
        """How USING names it: `name@3`."""
        return f"{self.name}@{self.version}"

    @property
    def statement_file(self) -> Path:
        """The statement that made it."""
        return self.folder / "statement.sql"

    @property
    def values_file(self) -> Path:
        """The values file of its training."""
        return self.folder / "job.yaml"

    @property
    def model_file(self) -> Path:
        """What a prediction has to know, as JSON."""
        return self.folder / _MODEL_FILE

    @property
    def statistics_file(self) -> Path:
        """The statistics, as JSON."""
        return self.folder / "statistics.json"

    @property
    def evaluation_file(self) -> Path:
        """Figures of the last evaluation in training, as JSON."""
        return self.folder / "evaluation.json"

    @property
    def checkpoints_dir(self) -> Path:
        """Where its checkpoints are."""
        return self.folder / "checkpoints"

    @property
    def export_dir(self) -> Path:
        """The exported model."""
        return self.folder / "export"

    @property
    def data_dir(self) -> Path:
        """Shards and vocabularies."""
        return self.folder / "data"

    @property
    def vocabularies_dir(self) -> Path:
        """The vocabularies that are too large for its module."""
        return self.data_dir / "vocabularies"

    @property
    def is_whole(self) -> bool:
        """Whether it is trained."""
        if not self.model_file.exists():
            return False
        return not self.pending_file.exists() or _has_files(self.export_dir)

    @property
    def pending_file(self) -> Path:
        """Is there while a job in a cluster has not told its end."""
        return self.folder / "pending"

    @property
    def modules(self) -> list[Path]:
        """The files of its model code."""
        return sorted(self.folder.glob("*.py"))


@dataclass(frozen=True)
class Description:
    """What is known of a model beside its files."""

    columns: tuple[ColumnPlan, ...]
    label: LabelPlan
    schema: Schema
    model: str
    engine: str = ""
    notes: tuple[str, ...] = ()
    num_training: int = 0
    num_validation: int = 0
    made: float = 0.0  # Unix seconds
    evaluation: dict[str, float] = field(default_factory=dict)


class Registry:
    """The models of a folder."""

    def __init__(self, root: Path) -> None:
        """Take the folder, which is made with the first model."""
        self.root = root

    def names(self) -> list[str]:
        """Return the models' names, in order. Raises SpecError if they are not read."""
        try:
            if not self.root.is_dir():
                if self.root.exists():
                    raise SpecError(
                        f"{self.root} is a file; expected a folder of models"
                    )
                return []
            return sorted(p.name for p in self.root.iterdir() if self._versions(p.name))
        except OSError as error:
            raise SpecError(
                f"{self.root}: its models cannot be read: {error.strerror or error}; "
                "name another folder with --models-dir"
            ) from error

    def versions(self, name: str) -> list[ModelVersion]:
        """Return the whole versions of a model, oldest first."""
        place = self.root / name
        return [ModelVersion(name, v, place / str(v)) for v in self._versions(name)]

    def all(self) -> list[ModelVersion]:
        """Return all versions of all models."""
        return [one for name in self.names() for one in self.versions(name)]

    def find(self, reference: str) -> ModelVersion:
        """Return `name@2`, or of `name` the newest version.

        Raises NotFoundError with names that are near.
        """
        name, mark, number = reference.partition("@")
        there = self.versions(name) if _NAME.fullmatch(name) else []
        if not there:
            known = self.names()
            hint = did_you_mean(name, known) if known else "no model was trained yet"
            raise NotFoundError(f"no model {name!r} in {self.root}; {hint}")
        if not mark:
            return there[-1]
        found = [one for one in there if str(one.version) == number]
        if not found:
            known_versions = ", ".join(one.reference for one in there)
            raise NotFoundError(
                f"no version {number!r} of model {name!r}; there are: {known_versions}"
            )
        return found[0]

    def _versions(self, name: str) -> list[int]:
        place = self.root / name
        if not place.is_dir():
            return []
        return sorted(
            int(p.name)
            for p in place.iterdir()
            if p.name.isdecimal() and ModelVersion(name, int(p.name), p).is_whole
        )

    @contextmanager
    def adding(self, name: str) -> Iterator[ModelVersion]:
        """Give the folder of a new version, which is removed if this fails.

        The caller ends with `write_description`.
        """
        check_name(name)
        self._sweep()
        place = self.root / name
        made: list[Path] = []
        try:
            made += [one for one in (place, *place.parents) if not one.exists()]
            place.mkdir(parents=True, exist_ok=True)
            version = self._reserve(name, place)
        except OSError as error:
            _remove_empty(*made)
            raise _unwritable(self.root, error) from error
        try:
            with _making(version.folder):
                yield version
        except BaseException:
            shutil.rmtree(version.folder, ignore_errors=True)
            _remove_empty(place, *made)
            raise
        self.thin(name)

    def _sweep(self) -> None:
        """Remove what is left of versions whose process was killed meanwhile."""
        for folder in self.root.glob("[!.]*/*"):
            if not folder.name.isdecimal() or folder.is_symlink():
                continue
            mark = folder / _MAKING
            # No mark: made by another release, or where no file can be locked.
            with suppress(OSError), mark.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Some shared folders know locks of each machine alone.
                ours = file.read() == platform.node()
                if ours and not (folder / _MODEL_FILE).exists():
                    shutil.rmtree(folder)

    def thin(self, name: str) -> None:
        """Remove the shards of all versions but the newest."""
        for older in self.versions(name)[:-1]:
            for side in ("training", "validation"):
                shutil.rmtree(older.data_dir / side, ignore_errors=True)

    def run(self, name: str, job: str) -> ModelVersion:
        """Return the version that a job makes, with the number that it has or gets.

        Its folder is there afterwards. Each try of the job has the same one.
        """
        check_name(name)
        folder = self.root / name / RUNS / job
        folder.mkdir(parents=True, exist_ok=True)
        aim = Path(RUNS, job)
        for link in (self.root / name).iterdir():
            if link.is_symlink() and link.readlink() == aim and link.name.isdecimal():
                return ModelVersion(name, int(link.name), folder)
        version = self._reserve(name, self.root / name, lambda p: p.symlink_to(aim))
        return ModelVersion(name, version.version, folder)

    def discard(self, name: str, job: str) -> None:
        """Remove what a job that failed left."""
        version = self.run(name, job)
        (self.root / name / str(version.version)).unlink()
        shutil.rmtree(version.folder, ignore_errors=True)
        _remove_empty(self.root / name / RUNS, self.root / name)

    def _reserve(
        self, name: str, place: Path, make: Callable[[Path], None] = Path.mkdir
    ) -> ModelVersion:
        """Make the folder of the next number, which nobody else has then."""
        taken = [int(p.name) for p in place.iterdir() if p.name.isdecimal()]
        # Looked at last: a version that is dropped meanwhile is here before it goes.
        taken += self._dropped(name)
        number = max(taken, default=0) + 1
        while True:
            try:
                make(place / str(number))
            except FileExistsError:
                number += 1
            else:
                return ModelVersion(name, number, place / str(number))

    def drop(self, reference: str) -> list[ModelVersion]:
        """Remove a version, or with a bare name all of them; return which."""
        one = self.find(reference)
        gone = [one] if "@" in reference else self.versions(one.name)
        try:
            self._use_up(gone[-1])
        except OSError as error:
            raise SpecError(
                f"{self.root}: {reference} cannot be dropped there: "
                f"{error.strerror or error}; it is for whoever may write that folder"
            ) from error
        for version in gone:
            if version.folder.is_symlink():
                there = version.folder.resolve()
                version.folder.unlink()
                shutil.rmtree(there)
                continue
            aside = version.folder.with_name(f"{version.version}.gone")
            version.folder.rename(aside)
            shutil.rmtree(aside)
        _remove_empty(self.root / one.name / RUNS, self.root / one.name)
        return gone

    def keep_answers(self, table: str, parquet: Path) -> Path:
        """Copy answers that a job gave and no table took; return where they are."""
        plain = re.sub(r"[^A-Za-z0-9_]+", "-", table)[-60:]
        place = self.root / _ANSWERS / f"{plain}-{secrets.token_hex(4)}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(parquet, place)
        except OSError:
            place.unlink(missing_ok=True)
            raise
        return place

    def _dropped(self, name: str) -> list[int]:
        """Return numbers that a name had once; the largest are enough."""
        found = (self.root / _DROPPED).glob(f"{name}@*")
        return [int(path.name.rpartition("@")[2]) for path in found]

    def _use_up(self, version: ModelVersion) -> None:
        """Note that a number is never given again."""
        place = self.root / _DROPPED
        place.mkdir(exist_ok=True)
        (place / version.reference).touch()
        for number in self._dropped(version.name):
            if number < version.version:
                (place / f"{version.name}@{number}").unlink(missing_ok=True)


@contextmanager
def _making(folder: Path) -> Iterator[None]:
    """Hold a lock on a mark in a version's folder: it goes with this process."""
    aside = folder.with_name(f".{folder.name}.making")
    with aside.open("wb", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # of a file system without locks
            aside.unlink()
        else:
            try:
                file.write(platform.node().encode())
                aside.rename(folder / _MAKING)  # Nobody sees it without its lock.
            except OSError as error:
                aside.unlink()
                raise _unwritable(folder.parents[1], error) from error
        yield
        (folder / _MAKING).unlink(missing_ok=True)


def _unwritable(root: Path, error: OSError) -> SpecError:
    return SpecError(
        f"{root}: a model's folder cannot be made there: {error.strerror or error}; "
        "name a folder of yours with --models-dir"
    )


def _remove_empty(*folders: Path) -> None:
    """Remove folders that nothing is in: a version may just be trained in one."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _has_files(folder: Path) -> bool:
    """Whether an export is in place: it is written aside, under a hidden name."""
    if not folder.is_dir():
        return False
    return any(not path.name.startswith(".") for path in folder.iterdir())


def check_name(name: str) -> None:
    """Raise SpecError unless a name can be a folder's."""
    if not _NAME.fullmatch(name):
        raise SpecError(
            f"INTO: got the name {name!r}, expected letters, digits, `_`, `-` and `.`, "
            "as income_model; a version is numbered by the registry"
        )


def write_description(version: ModelVersion, about: Description) -> None:
    """Write model.json."""
    tree = {**asdict(about), "made": about.made or time.time()}
    write_whole(version.model_file, json.dumps(tree, indent=1), durable=True)


def write_statistics(version: ModelVersion, statistics: Statistics) -> None:
    """Write statistics.json."""
    text = json.dumps(asdict(statistics), indent=1)
    write_whole(version.statistics_file, text, durable=False)


def read_description(version: ModelVersion) -> Description:
    """Return what model.json says. Raises SpecError if it cannot be read."""
    try:
        tree = json.loads(version.model_file.read_text(encoding="utf-8"))
        return description_of(tree)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise SpecError(
            f"{version.model_file}: cannot be read: {error!r}; drop "
            f"{version.reference} and train it again"
        ) from error


def description_of(tree: Mapping[str, Any]) -> Description:
    """Return a description that was written as JSON."""
    return Description(
        columns=tuple(map(_column_plan, tree["columns"])),
        label=_label(tree["label"]),
        schema=schema_of(tree["schema"]),
        model=tree["model"],
        engine=tree["engine"],
        notes=tuple(tree["notes"]),
        num_training=tree["num_training"],
        num_validation=tree["num_validation"],
        made=float(tree["made"]),
        evaluation={name: float(one) for name, one in tree["evaluation"].items()},
    )


def schema_of(tree: Mapping[str, Any]) -> Schema:
    """Return a schema that was written as JSON."""
    return Schema(tuple(_column(one) for one in tree["columns"]))


def _column_plan(tree: Mapping[str, Any]) -> ColumnPlan:
    return ColumnPlan(**{**tree, "stored": Stored(tree["stored"])})


def _column(tree: Mapping[str, Any]) -> Column:
    item = Kind(tree["item"]) if tree["item"] else None
    return Column(**{**tree, "kind": Kind(tree["kind"]), "item": item})


def _label(tree: Mapping[str, Any]) -> LabelPlan:
    made = {"kind": Kind(tree["kind"]), "head": Head(tree["head"])}
    return LabelPlan(**{**tree, **made, "classes": tuple(tree["classes"])})
