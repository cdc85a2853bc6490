"""The trained model on disk, for serving and for Python.

Owns the names and the atomic writing: each format is written aside and renamed, so a
reader never meets half a model, and an interrupted export leaves the old one. Called
by the worker for EXPORT tasks, and by `definition` to ask whether it can be done.
Knows nothing of checkpoints.

    <dir>/saved_model/       TensorFlow SavedModel, signature `serving_default`
    <dir>/model.keras        Keras archive
    <dir>/best/              the same of the best model, where one is kept
    <dir>/.kept-best-<job>-<life>-<n>/    the same of a round, until it is moved
    <dir>/.kept-restored-<job>-<life>-<n>/
    <dir>/[best/].round      the round whose model was moved there
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import logging
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from elasticdl.errors import CheckpointError, UserCodeError
from elasticdl.model.feed.call import functional_inputs
from elasticdl.model.user_code import short

log = logging.getLogger(__name__)

SAVED_MODEL = "savedModel"
KERAS = "keras"
_ASIDE = ".kept-"
_MARK = ".round"
_WORK = ".export-"
_ENDPOINT = "serve"  # as `model.export` names it; the first is `serving_default` too
_OWN_TRACE = "_default_save_signature"  # of Keras's layers, asked by TensorFlow
_NO_NAME = re.compile(r"[^a-zA-Z0-9_]")
FILE_OF = {SAVED_MODEL: "saved_model", KERAS: "model.keras"}


def export_model(
    model: keras.Model,
    directory: Path,
    formats: Sequence[str],
    *,
    input_signature: Any | None = None,
) -> list[Path]:
    """Write the model; return the paths written, in the order of `formats`.

    A subclassed model that Keras cannot put into an archive is written in the other
    formats, with a warning, and an earlier archive there is removed; if there is no
    other format, UserCodeError. CheckpointError when
    the disk refuses (no room, no permission).

    Args:
        model: built; `input_signature` is needed if it is subclassed.
        directory: made if it is not there.
        formats: of `savedModel`, `keras`.
        input_signature: ModelDefinition.input_signature.
    """
    written: list[Path] = []
    refused: dict[str, str] = {}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _work_folder(directory) as aside:
            for name in formats:
                path = aside / FILE_OF[name]
                try:
                    _write(model, path, name, input_signature)
                except OSError:
                    raise
                except Exception as error:  # noqa: BLE001 - user layers are saved here
                    refused[name] = f"{name}: {type(error).__name__}: {short(error)}"
                    log.warning(
                        "the model cannot be exported as %s: %s", name, short(error)
                    )
                    continue
                written.append(_move(path, directory / FILE_OF[name], aside))
            for name in refused if written else ():
                # One of an earlier job would pass for this model beside the others.
                earlier = directory / FILE_OF[name]
                if earlier.exists():
                    earlier.rename(aside / f"earlier-{earlier.name}")
                    log.warning("removed %s, which is of another model", earlier)
    except OSError as error:
        raise CheckpointError(
            f"the model cannot be exported to {directory}: {error.strerror or error}; "
            "make room, or set export.dir to a folder that can be written"
        ) from error
    if refused and not written:
        raise UserCodeError(
            f"the model cannot be exported ({'; '.join(refused.values())}); give its "
            "layers `get_config`, or change export.formats"
        )
    return written


@contextlib.contextmanager
def _work_folder(directory: Path) -> Iterator[Path]:
    """Give a folder to write in; remove those that killed exporters left.

    Its maker holds a lock on it, which the system takes from it when it ends.
    """
    for left in directory.glob(f"{_WORK}*"):
        with contextlib.suppress(OSError), _locked(left):
            shutil.rmtree(left, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(
            dir=directory, prefix=_WORK, ignore_cleanup_errors=True
        ) as name,
        contextlib.ExitStack() as held,
    ):
        with contextlib.suppress(OSError):  # a file system without locks
            held.enter_context(_locked(Path(name)))
        yield Path(name)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. Raises OSError if another process has it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def check_exports(
    model: keras.Model, formats: Sequence[str], input_signature: Any | None
) -> None:
    """Tell before the training how a subclassed model cannot be exported.

    Others are of layers that Keras traced already. Raises UserCodeError where no format
    is left.

    Args:
        model: built; `input_signature` and `formats` as of export_model.
        formats: of `savedModel`, `keras`.
        input_signature: ModelDefinition.input_signature.
    """
    if functional_inputs(model) is not None or input_signature is None:
        return
    name = type(model).__name__
    if SAVED_MODEL in formats:
        try:
            _served(model, _named([input_signature]))
        except Exception as error:  # user layers are traced here
            told = (
                f"{name} cannot be exported as {SAVED_MODEL}: it is traced for batches "
                f"of any size, and then {type(error).__name__}: {short(error)}"
            )
            if KERAS not in formats:
                raise UserCodeError(
                    f"{told}; change {name}, or export.formats"
                ) from error
            log.warning("%s; the export will be %s alone", told, FILE_OF[KERAS])
    if KERAS in formats and not _loads_alone(model):
        log.warning(
            "%s has the values of %s, but keras.models.load_model cannot make them "
            "its own: it calls a model with dense floats to build it. Make a %s, call "
            "it with a batch, then `load_weights` of that file; or give %s the method "
            "build_from_config",
            FILE_OF[KERAS],
            *[name] * 3,
        )


def _loads_alone(model: keras.Model) -> bool:
    """Whether Keras can build a subclassed model that it loads, by shapes alone.

    Where it cannot, layers have new values and only a warning says so.
    """
    made = type(model)
    if made.build_from_config is not keras.Model.build_from_config:
        return True
    if made.build is not keras.Model.build:  # called twice, it may make values twice
        return True
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.build_from_config(model.get_build_config())
    return not said


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
        numbers, and a place that has a later one's model is left alone.

        Raises CheckpointError when the disk refuses, or the model is not there.
        """
        mark = place / _MARK
        try:
            place.mkdir(parents=True, exist_ok=True)
            there = self._is_in(mark)
            if self._unnamed.is_dir() and not (there or self.path.is_dir()):
                self._unnamed.rename(self.path)
            if self.path.is_dir():
                for name in FILE_OF.values():
                    if (self.path / name).exists():
                        _move(self.path / name, place / name, self.path)
                mine = self.path / _MARK
                mine.write_text(self._model.mark)
                mine.replace(mark)
                shutil.rmtree(self.path, ignore_errors=True)
            elif not there:
                raise FileNotFoundError(errno.ENOENT, "the model is not there")
        except OSError as error:
            raise CheckpointError(
                f"the model in {self.path} cannot be moved to {place}: "
                f"{error.strerror or error}; "
                "export.dir has to be one folder for all workers, which they can write"
            ) from error
        self.clear()
        # In others, a model of before may lie there.
        written = [place / FILE_OF[name] for name in formats]
        return [path for path in written if path.exists()]

    def _is_in(self, mark: Path) -> bool:
        """Whether a place has this model, or that of a later round of this life."""
        mine = self._model
        try:
            text = mark.read_text()
            if text.isdecimal():  # by an earlier version, which told of no job
                return int(text) >= mine.number
            found = RoundOf.of_mark(text)
        except (OSError, ValueError):
            return False
        same = (found.job, found.life) == (mine.job, mine.life)
        return same and found.number >= mine.number


def clear_left_aside(directory: Path, last: RoundOf) -> None:
    """Remove the models that a job's rounds up to the `last` one have left aside.

    Each is of a round whose master was lost before its journal had it, or of a life of
    the job that it left: nothing moves it any more. One that somebody still writes is
    left to them.
    """
    for path, life, number in _aside_of(directory, last.job, "*"):
        if (life, number) <= (last.life, last.number) and not _is_written(path):
            shutil.rmtree(path, ignore_errors=True)


def _aside_of(
    directory: Path, job: str, target: str
) -> Iterator[tuple[Path, int, int]]:
    """Yield each model that a job has aside, its life and round."""
    names = re.compile(rf"{re.escape(_ASIDE)}[a-z]+-{re.escape(job)}-(\d+)-(\d+)")
    for path in directory.glob(f"{_ASIDE}{target}-*"):
        if found := names.fullmatch(path.name):
            yield path, int(found[1]), int(found[2])


def _is_written(folder: Path) -> bool:
    """Whether somebody writes a model there now."""
    try:
        for work in folder.glob(f"{_WORK}*"):
            with _locked(work):
                pass
    except OSError:
        return True
    return False


def _write(model: keras.Model, path: Path, name: str, input_signature: Any) -> None:
    if name == KERAS:
        if model.compiled and model.optimizer and not model.optimizer.built:
            # Its slots are on the PS. An archive without them warns when it is loaded;
            # zeros are what a further `fit` would begin with anyway.
            model.optimizer.build(model.trainable_variables)
        model.save(path)
        return
    signature = _signature(model, input_signature)
    if signature is None:  # Keras asks the model's first call
        model.export(str(path), format="tf_saved_model", verbose=False)
        return
    archive = keras.export.ExportArchive()
    archive.track(model)
    # Of a signature Keras takes dense tensors alone; of a traced function, all.
    archive.add_endpoint(_ENDPOINT, _served(model, signature))
    with _traced_once(model):
        archive.write_out(str(path), verbose=False)


def _served(model: keras.Model, signature: list[Any]) -> Any:
    """Return what answers a server, traced."""
    # `model.export` does not say that this is inference: layers that flip, turn or
    # crop images train where nobody says so, and a server would answer by chance.
    served = tf.function(
        functools.partial(model, training=False),
        input_signature=signature,
        autograph=False,
    )
    served.get_concrete_function()
    return served


@contextlib.contextmanager
def _traced_once(model: keras.Model) -> Iterator[None]:
    """Keep Keras from a trace of its own, which nothing uses.

    It calls a subclassed model, and those within it, with dense floats of the shapes
    that they were built with, whatever they take: ids, ragged or sparse features.
    """
    owners = [one for one in type(model).__mro__ if _OWN_TRACE in vars(one)]
    if not owners:
        yield
        return
    kept = vars(owners[0])[_OWN_TRACE]
    setattr(owners[0], _OWN_TRACE, None)
    try:
        yield
    finally:
        setattr(owners[0], _OWN_TRACE, kept)


def _signature(model: keras.Model, given: Any) -> list[Any] | None:
    """Return the specs of the model's argument, as `model.export` makes them."""
    inputs = functional_inputs(model)
    if inputs is None:
        return None if given is None else _named([given])

    def spec(tensor: Any) -> tf.TensorSpec:
        return tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype, tensor.name)

    return _named([keras.tree.map_structure(spec, inputs)])


def _named(signature: list[Any]) -> list[Any]:
    """Return specs with names that a signature of TensorFlow can have.

    It takes `user id` for no name, and `A` for that of `a`.
    """
    taken: set[str] = set()

    def named(spec: Any) -> Any:
        if not isinstance(spec, tf.TensorSpec) or not spec.name:
            return spec
        stem = _NO_NAME.sub("_", spec.name)
        stem = name = stem if stem[0].isalpha() else f"arg_{stem}"
        number = 0
        while name.lower() in taken:
            number += 1
            name = f"{stem}_{number}"
        taken.add(name.lower())
        return tf.TensorSpec(spec.shape, spec.dtype, name)

    flat = tf.nest.flatten(signature, expand_composites=False)
    packed: list[Any] = tf.nest.pack_sequence_as(signature, [named(n) for n in flat])
    return packed


def _move(path: Path, target: Path, aside: Path) -> Path:
    """Move the written file into place; an existing one is moved aside first."""
    if target.exists():
        old = aside / f"old-{target.name}"
        target.rename(old)
        try:
            path.rename(target)
        except OSError:
            old.rename(target)
            raise
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
    else:
        path.rename(target)
    return target
