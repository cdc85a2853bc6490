"""YAML that others wrote, read in a loop that serves many jobs.

Owns how much of it is read, and a loader that stops there. Used by `job.values` for
texts that both controllers read, and by the cluster's controller for templates. Must
not know what a text is about.

The parser takes a tenth of a millisecond for each value, much longer where values nest
deeply, and aliases of aliases make a thousand million values of ten lines.
"""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import Node, ScalarNode

# Keys, values, lists and mappings: a values file of 500 variables has about 2,000, and
# 10,000 take a second. Model code in `model.files` is one value a file.
MOST_VALUES = 10_000
MOST_CHARACTERS = 512 * 1024
MOST_NESTED = 100
# Of what is no text: base 60, which YAML 1.1 has, takes a minute for a long one.
MOST_DIGITS = 400


class TooMuchError(ValueError):
    """A text that takes too long to be read beside other work."""


def load_bounded(text: str) -> Any:
    """Return what stands in a text. Raises TooMuchError, and as YAML's `load` does."""
    if len(text) > MOST_CHARACTERS:
        raise TooMuchError(f"{len(text)} characters, more than {MOST_CHARACTERS}")
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _BoundedComposer
    return yaml.load(text)


def check_tree(tree: Any) -> None:
    """Raise TooMuchError for a tree that holds more than a text may."""
    left, todo = MOST_VALUES, [tree]
    while todo:
        inner = todo.pop()
        if isinstance(inner, str):
            left -= len(inner) * MOST_VALUES // MOST_CHARACTERS
        elif isinstance(inner, dict):
            todo.extend((*inner.keys(), *inner.values()))
        elif isinstance(inner, list):
            todo.extend(inner)
        left -= 1
        if left < 0:
            raise TooMuchError(_MANY)


_MANY = f"more than {MOST_VALUES} keys and values"


def _is_long_number(node: ScalarNode) -> bool:
    is_text = str(node.tag).endswith((":str", ":binary"))
    return len(node.value) > MOST_DIGITS and not is_text


class _BoundedComposer(Composer):
    """Composes nodes up to the bounds."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        self._nodes = self._level = 0

    def compose_node(self, parent: Any, index: Any) -> Node:
        if self.parser.check_event(AliasEvent):
            raise TooMuchError("an alias (`*name`) of what stands elsewhere in it")
        self._nodes += 1
        self._level += 1
        if self._nodes > MOST_VALUES:
            raise TooMuchError(_MANY)
        if self._level > MOST_NESTED:
            raise TooMuchError(f"values that nest deeper than {MOST_NESTED} levels")
        node: Node = super().compose_node(parent, index)
        self._level -= 1
        if isinstance(node, ScalarNode) and _is_long_number(node):
            raise TooMuchError(f"a number of more than {MOST_DIGITS} digits")
        return node
