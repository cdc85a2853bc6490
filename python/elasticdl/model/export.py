"""The trained model on disk, for serving and for Python.

Owns the names and the atomic writing: each format is written aside and renamed, so a
reader never meets half a model, and an interrupted export leaves the old one. Called
by the worker for EXPORT tasks, and by `definition` to ask whether it can be done.
Knows nothing of checkpoints, nor of rounds (`worker.uses.models_aside`).

    <dir>/saved_model/       TensorFlow SavedModel, signature `serving_default`
    <dir>/model.keras        Keras archive
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import logging
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
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
                written.append(move(path, directory / FILE_OF[name], aside))
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


def is_written(folder: Path) -> bool:
    """Whether somebody is known to write a model there now."""
    for work in folder.glob(f"{_WORK}*"):
        try:
            with _locked(work):
                pass
        except BlockingIOError:
            return True
        except OSError:  # it is gone, or the file system has no locks
            continue
    return False


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


def move(path: Path, target: Path, aside: Path) -> Path:
    """Move a written file into place, an existing one aside first. Raises OSError."""
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
