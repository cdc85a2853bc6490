"""How much a YAML text with aliases stands for.

Owns that count. Asked before a text is read that others wrote: a few lines of aliases
of aliases stand for more than a machine can hold. Must not know what a text means.
"""

from __future__ import annotations

import re

from ruamel.yaml import YAML
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    ScalarEvent,
)

# Nobody writes as much by hand; to read it takes seconds.
MOST_NODES = 100_000
_ANCHOR, _ALIAS = re.compile(r"&[^\s&]"), re.compile(r"\*[^\s*]")


def too_much(text: str) -> int:
    """Return the number of nodes of a text, if its aliases make too many; else 0.

    Raises YAMLError.
    """
    if not (_ANCHOR.search(text) and _ALIAS.search(text)):
        return 0
    nodes = _nodes(text)
    return nodes if nodes > MOST_NODES else 0


def _nodes(text: str) -> int:
    """Return how many nodes there are where each alias is what it stands for."""
    sizes: dict[str, int] = {}
    around: list[tuple[str | None, int]] = []
    size = 0  # of the collection that is being read, so far
    aliases = False
    for event in YAML(typ="safe").parse(text):
        if isinstance(event, CollectionStartEvent):
            around.append((event.anchor, size))
            size = 1
            continue
        if isinstance(event, CollectionEndEvent):
            anchor, before = around.pop()
            made = size
            size = before
        elif isinstance(event, AliasEvent):
            aliases = True
            anchor, made = None, sizes.get(str(event.anchor), 1)
        elif isinstance(event, ScalarEvent):
            anchor, made = event.anchor, 1
        else:
            continue
        if anchor:
            sizes[str(anchor)] = made
        size += made
    return size if aliases else 0
