"""Whether the loss of a module of one's own says that it takes logits.

Owns how a loss is followed through imports and other names to where it is made. Called
by `sql.running.own`. Pure: texts of modules in, an answer out. Must not import them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from elasticdl.job.names import ZOO_NAME

_MOST_STEPS = 10  # From name to name; modules may import each other in a circle.


def takes_logits(
    files: Mapping[str, str], places: list[str], symbol: str
) -> bool | None:
    """Return whether what is called so takes logits, or None where it is not there.

    Args:
        files: Texts of modules by their paths in the zoo.
        places: Where the symbol may be, the first of them that is there.
        symbol: The name of a function, a class or a value.
    """
    return _asked(files, places, symbol, _MOST_STEPS)


def _asked(
    files: Mapping[str, str], places: list[str], symbol: str, steps: int
) -> bool | None:
    place = next((one for one in places if one in files), None)
    if place is None or not steps:
        return None
    for one in reversed(_parsed(files[place])):  # The last one of a name is in force.
        if isinstance(one, ast.ImportFrom):
            for alias in one.names:
                if (alias.asname or alias.name) == symbol:
                    return _imported(files, place, one, alias.name, steps - 1)
        made = _made(one, symbol)
        if isinstance(made, ast.Name):
            return _asked(files, [place], made.id, steps - 1)
        if made is not None:
            return any(map(_is_of_logits, ast.walk(made)))
    return None


def _made(one: ast.stmt, symbol: str) -> ast.AST | None:
    """Return what a line makes of that name: a function, a class, a value."""
    if isinstance(one, ast.FunctionDef | ast.ClassDef):
        return one if one.name == symbol else None
    if not isinstance(one, ast.Assign | ast.AnnAssign):
        return None
    targets = one.targets if isinstance(one, ast.Assign) else [one.target]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return one.value if symbol in names else None


def _imported(
    files: Mapping[str, str], place: str, of: ast.ImportFrom, name: str, steps: int
) -> bool:
    if name.endswith("cross_entropy_with_logits"):
        return True
    parts = of.module.split(".") if of.module else []
    if of.level:
        parts = [*place.split("/")[: -of.level], *parts]
    elif parts[:1] == [ZOO_NAME] and not any(one.startswith(ZOO_NAME) for one in files):
        parts = parts[1:]  # so the zoo is called in it, whatever its folder is
    path = "/".join(parts)
    places = [one for one in (f"{path}.py", f"{path}/__init__.py") if one in files]
    return bool(_asked(files, places, name, steps))


def _parsed(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except SyntaxError:  # of a module that perhaps nobody imports
        return []


def _is_of_logits(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        says_yes = isinstance(node.value, ast.Constant) and node.value.value is True
        return node.arg == "from_logits" and says_yes
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return str(name).endswith("cross_entropy_with_logits")
    if isinstance(node, ast.Attribute):  # itself a loss: `loss = tf.nn....`
        return node.attr.endswith("cross_entropy_with_logits")
    return False
