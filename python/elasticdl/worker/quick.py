"""Makes a worker's first import of Keras and TensorFlow take half as long.

Owns what is left out of it: looks for garbage among a million objects that stay, and
packages that Keras imports where they are installed and a job has no use for. Called
by main around the first import. Must not hide them from the user's own code.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

# Only for `keras.wrappers`, which train by themselves: a third of all the time.
_NOT_NEEDED = ("sklearn",)


@contextmanager
def quick_import() -> Iterator[None]:
    """Import without what costs most and brings nothing; nothing else is done later.

    Within, no thread imports one of the packages that are left out.
    """
    if "keras" in sys.modules:
        yield
        return
    # As if they were not installed: Keras asks for them, and goes on without.
    modules = cast("dict[str, object]", sys.modules)
    hidden = [name for name in _NOT_NEEDED if name not in modules]
    modules.update(dict.fromkeys(hidden))
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]
        # What was imported is looked at never again.
        gc.freeze()
        if collects:
            gc.enable()
