"""Which optimizers keep the same slots and mean the same by them.

Owns that rule and reading an optimizer's class from its JSON. Called by PS and by
strategy local when a checkpoint is loaded for the job's optimizer.
"""

from __future__ import annotations

import json
from typing import Any

_SAME = {"AdamW": "Adam"}


def parsed(text: str) -> dict[str, Any]:
    """Return the tree of an optimizer's JSON; {} if there is none."""
    try:
        tree = json.loads(text or "{}")
    except json.JSONDecodeError:
        return {}
    return tree if isinstance(tree, dict) else {}


def class_name(text: str) -> str:
    """Return the class in an optimizer's JSON; "" if it is not known."""
    return str(parsed(text).get("class_name", ""))


def same_kind(wrote: str, mine: str) -> bool:
    """Return whether class `mine` can continue with slots that class `wrote` left."""
    return not wrote or _SAME.get(wrote, wrote) == _SAME.get(mine, mine)
