"""Where each key and value of a YAML text stands, and what is wrong with its syntax.

Owns line and column numbers and the plain wording of YAML errors. Called by
`job.values.file` only when there is a mistake to report: it reads the text again,
slowly.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from elasticdl.job.spec.problems import Problem

Path = tuple[str | int, ...]

# The parser's own words, and what they mean to somebody who writes a values file.
_SYNTAX = (
    (
        "cannot start any token",
        "a character that YAML has no use for, often a tab",
        "indent with spaces, and put text that begins with @ ` or % in quotes",
    ),
    (
        "found a tab",
        "a tab in the indentation",
        "indent with spaces",
    ),
    (
        "mapping values are not allowed",
        "a second `:` in one line, or a line indented too far",
        "put text that holds `: ` in quotes, and line keys up with their neighbours",
    ),
    (
        "could not find expected ':'",
        "a line that is no `key: value`",
        "add the colon and a space after the key",
    ),
    (
        "expected a single document",
        "a second document after `---`",
        "write one job per file",
    ),
    (
        "expected <block end>",
        "a line whose indentation fits nothing above it",
        "line it up with its neighbours",
    ),
    (
        "found undefined alias",
        "an alias (`*name`) without its anchor (`&name`)",
        "define the anchor first, or put the text in quotes",
    ),
    (
        "found unexpected end of stream",
        "the end of the file inside a quoted text",
        "close the quotes",
    ),
    (
        "expected ',' or",
        "a bracket or brace that is not closed",
        "close it",
    ),
)


@dataclass
class Positions:
    """Line and column (from 1) of the keys and values of one text."""

    keys: dict[Path, tuple[int, int]] = field(default_factory=dict)
    values: dict[Path, tuple[int, int]] = field(default_factory=dict)
    duplicates: list[tuple[Path, tuple[int, int], int]] = field(default_factory=list)

    def of_key(self, path: Path) -> tuple[int, int]:
        """Return the position of a key, or of the nearest mapping around it."""
        while path:
            if path in self.keys:
                return self.keys[path]
            if path in self.values:
                return self.values[path]
            path = path[:-1]
        return (1, 1)

    def of_value(self, path: Path) -> tuple[int, int]:
        """Return the position of a value, or of the nearest mapping around it."""
        return self.values[path] if path in self.values else self.of_key(path)


def find_positions(text: str) -> Positions:
    """Return the positions in a text; empty if it is not YAML."""
    positions = Positions()
    try:
        root = YAML(typ="rt").compose(text)
    except YAMLError:
        return positions
    if root is not None:
        _walk(root, (), positions, set())
    return positions


def key_text(key: object) -> str:
    """Return the text of a key as the job has it: `true`, where Python says `True`."""
    if isinstance(key, bool) or key is None:
        return json.dumps(key)
    return str(key)


def order_of(tree: object) -> Positions:
    """Return positions of what never was a text: only their order means anything."""
    positions = Positions()
    todo: list[tuple[Path, object]] = [((), tree)]
    while todo:
        path, inner = todo.pop()
        at = (len(positions.values) + 1, 1)
        positions.values[path] = positions.keys[path] = at
        if isinstance(inner, dict):
            parts = [((*path, key_text(key)), value) for key, value in inner.items()]
        elif isinstance(inner, list):
            parts = [((*path, index), value) for index, value in enumerate(inner)]
        else:
            parts = []
        todo += reversed(parts)
    return positions


def _walk(node: Node, path: Path, positions: Positions, open_nodes: set[int]) -> None:
    positions.values.setdefault(path, _at(node))
    if id(node) in open_nodes:  # an alias to a node around it
        return
    open_nodes.add(id(node))
    if isinstance(node, MappingNode):
        _walk_mapping(node, path, positions, open_nodes)
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            _walk(item, (*path, index), positions, open_nodes)
    open_nodes.discard(id(node))


def _walk_mapping(
    node: MappingNode, path: Path, positions: Positions, open_nodes: set[int]
) -> None:
    first: dict[str, int] = {}
    for key, value in node.value:
        name = str(key.value)
        if name == "<<":
            _walk(value, path, positions, open_nodes)
            continue
        inner = (*path, name)
        if name in first:
            positions.duplicates.append((inner, _at(key), first[name]))
            continue
        first[name] = _at(key)[0]
        positions.keys.setdefault(inner, _at(key))
        _walk(value, inner, positions, open_nodes)


def _at(node: Node) -> tuple[int, int]:
    return (node.start_mark.line + 1, node.start_mark.column + 1)


def syntax_problem(error: YAMLError, source: str) -> Problem:
    """Return the meaning and the place of a YAML error."""
    place = source
    words = str(error)
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        if mark is not None:
            place = f"{source}:{mark.line + 1}:{mark.column + 1}"
        words = " ".join(filter(None, (error.problem, error.context)))
    for sign, got, next_step in _SYNTAX:
        if sign in words:
            return Problem("", got, "YAML", next_step, place)
    return Problem("", f"text that is no YAML ({words})", "YAML", "correct it", place)
