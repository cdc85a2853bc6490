"""The model of a job whose module is made by its own `data.prepare`.

Called by the model code of such jobs, when the data is there. Must not import Keras:
the module does.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from elasticdl.job.values.file import load_values

ZOO = "zoo"
STUB_FILE = "statement.py"
STUB_DEFINITION = "statement.model"
_STUB = '''\
"""The model of a statement: `data.prepare` writes its module beside the shards."""

from elasticdl.sql.remote.module import load


def model():
    """Return the compiled model."""
    return load({folder!r})
'''


def stub(folder: str) -> dict[str, str]:
    """Return the files of the job's model code; `folder` is from the data root."""
    return {STUB_FILE: _STUB.format(folder=folder)}


def load(folder: str) -> Any:
    """Return the model that the module in a folder makes, compiled."""
    job = load_values(Path(folder) / "job.yaml").job
    zoo = str(Path(folder, ZOO).absolute())
    if zoo not in sys.path:
        sys.path.insert(0, zoo)
    importlib.invalidate_caches()
    module, _, function = job.model.definition.rpartition(".")
    return getattr(importlib.import_module(module), function)(**job.model.params)
