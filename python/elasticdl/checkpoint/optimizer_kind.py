"""Which optimizers keep the same slots and mean the same by them.

Owns that rule, how slots are named in a sentence, and reading an optimizer's class from
its JSON. Called by PS and by strategy local when a checkpoint is loaded for the job's
optimizer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

_SAME = {"AdamW": "Adam"}
_NAMED = 6  # slots in a sentence


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


def listed(slots: Sequence[str]) -> str:
    """Return slots for a sentence: the first ones, and how many more there are.

    A model whose lower half was frozen has hundreds that begin anew.
    """
    more = len(slots) - _NAMED
    return ", ".join(slots[:_NAMED]) + (f" and {more} more" if more > 0 else "")
