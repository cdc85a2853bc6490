"""Words that a job here and Helm read as different values, where any value may stand.

Owns that question. Called by `job.values.file` for a file that somebody wrote. Knows
no field but those that take anything: in all others such a word is no value at all.

Helm and kubectl read YAML 1.1: a bare `no` is false, and 017 is 15. A job here reads
YAML 1.2: it is a text, which Python takes for true, and 17. The same file would train
one model here and another one in a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from elasticdl.job.spec.problems import Problem

_FREE = (("job", "model", "params"), ("job", "data", "readerParams"))
_WORDS = re.compile(
    r"y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF|[-+]?0[XBO][0-9A-Fa-f_]+"
)
_OCTAL = re.compile(r"[-+]?0[0-7_]*[1-7][0-7_]+")


def kubernetes_reads_otherwise(text: str) -> bool:
    """Whether a text without quotes is something else to Helm and kubectl.

    They read YAML 1.1, where `on` is true; and numbers as Go has them.
    """
    return bool(_WORDS.fullmatch(text))


def two_readings(text: str, tree: dict[str, Any], source: str) -> list[Problem]:
    """Return a problem for each bare word of `text` that has two readings.

    `tree` is what the text holds; most hold nothing that would need a closer look.
    """
    if not any(_is_suspect(part) for path in _FREE for part in _parts(_at(tree, path))):
        return []
    root = YAML(typ="rt").compose(text)
    found: dict[tuple[int, int], Problem] = {}
    for path in _FREE:
        for dotted, node in _scalars(_node_at(root, path), ".".join(path), set()):
            if problem := _problem(dotted, node, source):
                found[node.start_mark.line, node.start_mark.column] = problem
    return [found[at] for at in sorted(found)]


def _problem(path: str, node: ScalarNode, source: str) -> Problem | None:
    word = str(node.value)
    if node.style in ("'", '"', "|", ">"):
        return None
    if kubernetes_reads_otherwise(word):
        expected = "true or false, or a text in quotes"
    elif _OCTAL.fullmatch(word):
        expected = "a number without zeros in front, or a text in quotes"
    else:
        return None
    mark = node.start_mark
    return Problem(
        path,
        f"a bare {word}, which a job here and Helm read differently",
        expected,
        f'write "{word}" if it is a text',
        f"{source}:{mark.line + 1}:{mark.column + 1}",
    )


def _is_suspect(value: Any) -> bool:
    if isinstance(value, str):
        return kubernetes_reads_otherwise(value)
    return isinstance(value, int) and abs(value) >= 10


def _parts(value: Any) -> Iterator[Any]:
    """Yield keys and values of all depths; `value` has no end of aliases."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _parts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _parts(inner)
    else:
        yield value


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def _node_at(node: Node | None, path: tuple[str, ...]) -> Node | None:
    for part in path:
        if not isinstance(node, MappingNode):
            return None
        node = next((value for key, value in node.value if key.value == part), None)
    return node


def _scalars(
    node: Node | None, path: str, around: set[int]
) -> Iterator[tuple[str, ScalarNode]]:
    """Yield all keys and values below a node, with their dotted paths."""
    if isinstance(node, ScalarNode):
        yield path, node
        return
    if node is None or id(node) in around:
        return
    inside = around | {id(node)}
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield from _scalars(key, path, inside)
            yield from _scalars(value, f"{path}.{key.value}", inside)
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            yield from _scalars(item, f"{path}[{index}]", inside)
