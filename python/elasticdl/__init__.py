"""ElasticDL: elastic deep learning on Kubernetes and on one machine."""

from importlib import import_module
from typing import Any

__version__ = "1.0.0.dev0"


def __getattr__(name: str) -> Any:
    """Return `elasticdl.sql`, and what `%load_ext elasticdl` asks for.

    It is imported only where it is used.
    """
    if name == "sql":
        return import_module("elasticdl.sql")
    if name == "load_ipython_extension":
        return import_module("elasticdl.sql.notebook").load_ipython_extension
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
