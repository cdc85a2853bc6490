r"""`--set a.b=c`: one change laid over a values file.

Owns the form of paths (`a.b`, `a\.b` for a dot in a key, `a[0]` for list items) and
the typing of values by YAML. Used by `job.values.file`. Must not know files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from elasticdl.job.spec.job import JobSpec
from elasticdl.job.spec.problems import Problem, did_you_mean, nearest
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.fields import aliases
from elasticdl.job.values.positions import key_text

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Override:
    """One override: value, path, and the user's own text."""

    path: Path
    value: Any
    written: str


def split_path(dotted: str) -> Path:
    r"""Return `a.b[0]` as ("a", "b", 0); `\.` is a dot in a key."""
    parts: list[str | int] = []
    for piece in re.split(r"(?<!\\)\.", dotted):
        name, *indices = re.split(r"\[(?=\d+\])", piece.replace("\\.", "."))
        if name or not indices:
            parts.append(name)
        parts.extend(int(index[:-1]) for index in indices)
    return tuple(parts)


def parse_override(argument: str, tree: Mapping[str, Any]) -> Override | Problem:
    """Return the override in `a.b=c`; the leading `job.` may be omitted."""
    written = f"--set {argument}"
    dotted, equals, text = argument.partition("=")
    path = split_path(dotted)
    if not equals or any(part == "" for part in path):
        return Problem(
            "", repr(argument), "path=value", "as job.training.epochs=3", written
        )
    try:
        value = YAML(typ="safe").load(text) if text else ""
    except (YAMLError, ValueError):
        return Problem("", repr(text), "a YAML value", "put it in quotes", written)
    known = list(aliases(JobSpec))
    if path[0] in known:
        return Override(("job", *path), value, written)
    if path[0] in aliases(ValuesFile) or path[0] in tree:
        return Override(path, value, written)
    if nearest(str(path[0]), ("job", "kind")) and len(path) > 1:
        known = ["job", "kind"]
    elif nearest(str(path[0]), known):  # checking the job will say which was meant
        return Override(("job", *path), value, written)
    return Problem(
        "", repr(path[0]), "a field of the job", did_you_mean(str(path[0]), known),
        written,
    )  # fmt: skip


def apply_override(
    tree: MutableMapping[str, Any], override: Override, *, remove_none: bool = False
) -> Problem | None:
    """Set the value in the tree; missing mappings are created."""
    inner: Any = tree
    for done, key in enumerate(override.path[:-1]):
        if isinstance(key, str) and isinstance(inner, MutableMapping):
            following = override.path[done + 1]
            if inner.get(key) is None:
                inner[key] = [] if isinstance(following, int) else {}
            inner = inner[key]
        elif isinstance(key, int) and isinstance(inner, list) and key < len(inner):
            inner = inner[key]
        else:
            return _no_way(override, done)
    last = override.path[-1]
    if isinstance(last, str) and isinstance(inner, MutableMapping):
        there = _spelled(inner, last)
        if override.value is None and remove_none:
            inner.pop(there, None)
        else:
            inner[there] = override.value
    elif isinstance(last, int) and isinstance(inner, list) and last <= len(inner):
        inner[last : last + 1] = [override.value]
    else:
        return _no_way(override, len(override.path) - 1)
    return None


def _spelled(mapping: Mapping[Any, Any], key: str) -> Any:
    """Return a key as the mapping has it: in YAML it may be a number, or `true`."""
    return next((there for there in mapping if key_text(there) == key), key)


def _no_way(override: Override, done: int) -> Problem:
    before = ".".join(map(str, override.path[:done]))
    key = override.path[done]
    if isinstance(key, int):
        got, expected = f"index {key}", f"a list with room for it at `{before}`"
    else:
        got, expected = f"key {key!r}", f"a mapping at `{before}`"
    return Problem("", got, expected, "look at the file once more", override.written)
