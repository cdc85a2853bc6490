"""The model of a job whose module is made by its own `data.prepare`.

Called by the model code of such jobs, when the data is there. Must not import Keras:
the module does.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from elasticdl.job.spec.job import ModelSpec
from elasticdl.job.values.file import load_values
from elasticdl.model import user_code
from elasticdl.model.user_code import ModelCode

ZOO = "zoo"
STUB_FILE = "statement.py"
STUB_DEFINITION = "statement.model"
_PARTS = ("feed", "loss", "optimizer", "eval_metrics", "callbacks")
_STUB = '''\
"""The model of a statement: `data.prepare` writes its module beside the shards."""

from elasticdl.sql.remote import module

FOLDER = {folder!r}
_CODE_FOLDERS = ({zoo!r},)  # Errors of code there are told with file and line.


def model():
    """Return the model."""
    return module.load(FOLDER)


def __getattr__(name):
    """Return a part of the module: its `loss`, its `feed`, if it has one."""
    return module.part(FOLDER, name)
'''


def stub(folder: str) -> dict[str, str]:
    """Return the files of the job's model code; `folder` is from the data root."""
    return {STUB_FILE: _STUB.format(folder=folder, zoo=f"{folder}/{ZOO}")}


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
    module, code, model = _imported(folder)
    function = model.definition.rpartition(".")[2]
    with code.running(f"{function}()"):
        return getattr(module, function)(**model.params)


def part(folder: str, name: str) -> Any:
    """Return what the module in a folder calls so. Raises AttributeError if nothing.

    What goes wrong while it is imported is a UserCodeError, also an AttributeError:
    that would say that the module has no such part, and the job would go on without.
    """
    if name.startswith("_"):  # Python's own questions, also before the data is there
        raise AttributeError(name)
    module, code, model = _imported(folder)
    for one in _PARTS:
        wanted = getattr(model, one)
        if "." in wanted and name == type(model).model_fields[one].default:
            return user_code.find_symbol(code, module, wanted)
    return getattr(module, name)


def _imported(folder: str) -> tuple[ModuleType, ModelCode, ModelSpec]:
    model = load_values(Path(folder) / "job.yaml").job.model
    code, _ = user_code.locate(Path(folder, ZOO), model.definition)
    return user_code.import_module(code, code.main_file), code, model
