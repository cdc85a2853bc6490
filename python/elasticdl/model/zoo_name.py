"""The zoo under the name `model_zoo`, whatever its folder is called.

Owns which folder that name means in a job's processes. Called by `user_code` when it
imports a module of a zoo. Knows nothing of what is in a zoo.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from elasticdl.job.names import ZOO_NAME


class _Finder(MetaPathFinder):
    """Finds the zoo first, and behind it what else is called so.

    Another folder of that name may lie beside the zoo, or on $PYTHONPATH: as where SQL
    took the modules of one along, or wrote a copy of them. Its modules would be others.
    """

    def __init__(self, folder: Path) -> None:
        """Take the folder whose modules are meant."""
        self.folder = folder

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        _target: ModuleType | None = None,
        /,
    ) -> ModuleSpec | None:
        """Return the package of that name; None of any other name."""
        if fullname != ZOO_NAME:
            return None
        found = PathFinder.find_spec(fullname, path)
        places = [str(self.folder)]
        if found is not None and found.submodule_search_locations is not None:
            others = [str(one) for one in found.submodule_search_locations]
            places += [one for one in others if Path(one).resolve() != self.folder]
        start = self.folder / "__init__.py"
        if start.is_file():
            return importlib.util.spec_from_file_location(
                fullname, start, submodule_search_locations=places
            )
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = places
        return spec


def name_zoo(root: Path) -> None:
    """Let modules of a zoo import `model_zoo.folder.file`.

    Args:
        root: The zoo's folder, or one in which a folder of that name lies.
    """
    inside = root / ZOO_NAME
    folder = (inside if inside.is_dir() else root).resolve()
    known = next((one for one in sys.meta_path if isinstance(one, _Finder)), None)
    if known is None:
        sys.meta_path.insert(0, _Finder(folder))
    elif known.folder == folder:
        return
    else:
        known.folder = folder
    for name in [one for one in sys.modules if one.partition(".")[0] == ZOO_NAME]:
        del sys.modules[name]  # of another zoo, or found before
