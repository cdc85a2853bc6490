"""Which symbols of the user's module play which part.

Owns the names of the parts, with their older spellings, and where inline model code is
written. Called by `definition`. Runs none of the functions it finds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import keras

from elasticdl.errors import UserCodeError
from elasticdl.files import write_whole
from elasticdl.job.spec.job import JobSpec
from elasticdl.model import user_code
from elasticdl.model.feed.call import Feed
from elasticdl.model.user_code import ModelCode, did_you_mean

_OLDER_FEED_NAMES = ("dataset_fn", "input_fn")
# Parts for which the job may have its own way: an empty name takes none of the module.
_LEFT_OUT = ("data_reader", "prediction_outputs_processor")
_FUNCTIONS = ("feed", "loss", "eval_metrics", "callbacks")


@dataclass(frozen=True)
class Symbols:
    """What the module defines; None for what it does not define."""

    model_name: str
    model_function: Callable[..., Any]
    feed: Feed | None
    loss: Callable[..., Any] | None
    optimizer: Callable[..., Any] | None
    metrics: Callable[..., Any] | None
    callbacks: Callable[..., Any] | None
    data_reader: Callable[..., Any] | None
    outputs_processor: Callable[..., Any] | None


def find_symbols(
    spec: JobSpec, code: ModelCode, module: ModuleType, name: str, function: Any
) -> Symbols:
    """Return the module's parts; `function` is the model function called `name`.

    Raises UserCodeError when the job names a symbol that the module does not have.
    """
    model = spec.model
    defaults = type(model)

    def find(field: str) -> Any | None:
        wanted = getattr(model, field)
        if not wanted and field in _LEFT_OUT:
            return None
        found = user_code.find_symbol(code, module, wanted)
        if found is None and wanted != defaults.model_fields[field].default:
            path = "".join(
                part.capitalize() if i else part
                for i, part in enumerate(field.split("_"))
            )
            raise UserCodeError(
                f"model.{path} names `{wanted}`, which {code.main_file} does not have"
                + did_you_mean(wanted, user_code.public_names(module))
            )
        if field not in _FUNCTIONS:
            return found
        named = wanted != defaults.model_fields[field].default
        return _function(found, wanted, named=named)

    feed = find("feed")
    for older in _OLDER_FEED_NAMES:
        if feed is None:
            feed = _function(user_code.find_symbol(code, module, older), older)
    return Symbols(
        model_name=name,
        model_function=function,
        feed=Feed(feed, code) if feed is not None else None,
        loss=find("loss"),
        optimizer=find("optimizer"),
        metrics=find("eval_metrics"),
        callbacks=find("callbacks"),
        data_reader=find("data_reader"),
        outputs_processor=find("prediction_outputs_processor"),
    )


def _function(found: Any | None, name: str, *, named: bool = False) -> Any | None:
    """Return a part that is a function; None for a module that was only imported.

    `named`: by the job, which then means it.
    """
    if found is None or (isinstance(found, ModuleType) and not named):
        return None
    if isinstance(found, type) and issubclass(found, keras.losses.Loss):
        raise UserCodeError(
            f"`{name}` of the model module is the class {found.__name__}, expected a "
            f"function or an object; write {name} = {found.__name__}()"
        )
    if not callable(found) or isinstance(found, keras.metrics.Metric):
        raise UserCodeError(
            f"`{name}` of the model module is of type {type(found).__name__}, expected "
            "a function; write one that returns it, or give it another name"
        )
    return found


def write_files(folder: Path, files: dict[str, str]) -> None:
    """Write inline model code; each file atomically, since others may read it."""
    for name, text in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise UserCodeError(
                f"model.files has `{name}`, expected a path inside the model's folder"
            )
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text, durable=False)
