"""The model of a job whose module is made by its own `data.prepare`.

Called by the model code of such jobs, when the data is there. Must not import Keras:
the module does.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from elasticdl.errors import UserCodeError
from elasticdl.job.spec.job import ModelSpec
from elasticdl.job.values.file import load_values

ZOO = "zoo"
STUB_FILE = "statement.py"
STUB_DEFINITION = "statement.model"
_PARTS = ("feed", "loss", "optimizer", "eval_metrics", "callbacks")
_STUB = '''\
"""The model of a statement: `data.prepare` writes its module beside the shards."""

from elasticdl.sql.remote import module

FOLDER = {folder!r}


def model():
    """Return the model."""
    return module.load(FOLDER)


def __getattr__(name):
    """Return a part of the module: its `loss`, its `feed`, if it has one."""
    return module.part(FOLDER, name)
'''


def stub(folder: str) -> dict[str, str]:
    """Return the files of the job's model code; `folder` is from the data root."""
    return {STUB_FILE: _STUB.format(folder=folder)}


def own_names(model: ModelSpec) -> list[str]:
    """Return overrides for parts that `job.model` names in other files.

    These come with the data, and nobody finds them before: the stub is asked by the
    usual name, and answers with what the module's own values name.
    """
    fields = type(model).model_fields
    return [
        f"job.model.{fields[name].alias or name}={fields[name].default}"
        for name in _PARTS
        if "." in getattr(model, name)
    ]


def load(folder: str) -> Any:
    """Return the model that the module in a folder makes."""
    module, model = _imported(folder)
    function = model.definition.rpartition(".")[2]
    return getattr(module, function)(**model.params)


def part(folder: str, name: str) -> Any:
    """Return what the module in a folder calls so. Raises AttributeError if nothing."""
    if name.startswith("_"):  # Python's own questions, also before the data is there
        raise AttributeError(name)
    module, model = _imported(folder)
    for one in _PARTS:
        wanted = getattr(model, one)
        if "." in wanted and name == type(model).model_fields[one].default:
            return _of_other_file(wanted, model)
    return getattr(module, name)


def _of_other_file(name: str, model: ModelSpec) -> Any:
    # Never an AttributeError, which says that the module has no such part.
    *path, symbol = name.split(".")
    beside = model.definition.split(".")[:-2]
    for parts in (path, [*beside, *path]):
        if "/".join(parts) + ".py" in model.files:
            found = getattr(importlib.import_module(".".join(parts)), symbol, None)
            if found is None:
                raise UserCodeError(f"`{name}`: {'/'.join(parts)}.py has no `{symbol}`")
            return found
    raise UserCodeError(f"`{name}`: there is no file {'/'.join(path)}.py")


def _imported(folder: str) -> tuple[ModuleType, ModelSpec]:
    model = load_values(Path(folder) / "job.yaml").job.model
    zoo = str(Path(folder, ZOO).absolute())
    if zoo not in sys.path:
        sys.path.insert(0, zoo)
    importlib.invalidate_caches()
    return importlib.import_module(model.definition.rpartition(".")[0]), model
