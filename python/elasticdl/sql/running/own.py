"""A model of one's own, `folder.file.function`: where its file is, and what it takes.

Owns the search and the difference between a function of encoded columns and a whole
classic module. Called by `sql.running.train`. Must not import the file: what is in it
may need TensorFlow.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import SpecError
from elasticdl.job.spec.problems import did_you_mean

# From the current folder here and from the data root in a cluster; then of an image.
ROOTS = (Path(), Path("model_zoo"), Path("/model_zoo"))


@dataclass(frozen=True)
class OwnModel:
    """Files of a zoo, and whether the function makes a whole model by itself."""

    files: dict[str, str]
    classic: bool


def find_own(definition: str, roots: Sequence[Path] = ROOTS) -> OwnModel:
    """Return the files beside a definition's own, by their paths in the zoo.

    A function without a needed argument makes a whole model: its module is a classic
    one, with loss, optimizer and feed of its own. Raises SpecError where the file or
    the function is not there.
    """
    *parts, function = definition.split(".")
    for root in roots:
        file = root.joinpath(*parts).with_suffix(".py")
        if file.is_file():
            text = _read(file)
            return OwnModel(_beside(root, file), _is_classic(file, text, function))
    looked = ", ".join(str(root.absolute()) for root in roots)
    path = Path(*parts).with_suffix(".py")
    there = sorted(
        ".".join(one.relative_to(root).with_suffix("").parts)
        for root in roots[:2]
        for one in root.glob("*/*.py")
    )
    hint = f"; {did_you_mean('.'.join(parts), there)}" if there else ""
    raise SpecError(
        f"TO TRAIN {definition}: there is no file {path} in {looked}; expected "
        f"`folder.file.function` of your own, or a model of ElasticDL{hint}"
    )


def _beside(root: Path, file: Path) -> dict[str, str]:
    """Return all modules of the file's folder; of one in the root, itself."""
    folder = file.parent
    every = [file] if folder == root else sorted(folder.rglob("*.py"))
    return {str(one.relative_to(root)): _read(one) for one in every}


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{file}: cannot be read: {error}") from error


def _is_classic(file: Path, text: str, name: str) -> bool:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise SpecError(f"{file}, line {error.lineno}: {error.msg}") from error
    functions = {
        one.name: one
        for one in tree.body
        if isinstance(one, ast.FunctionDef | ast.ClassDef)
    }
    found = functions.get(name)
    if found is None:
        hint = did_you_mean(name, list(functions))
        raise SpecError(f"{file} has no function `{name}`; {hint}")
    if isinstance(found, ast.ClassDef):
        return True
    arguments = found.args
    positional = [*arguments.posonlyargs, *arguments.args]
    return len(positional) == len(arguments.defaults)
