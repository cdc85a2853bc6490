"""What is said of a model's state: by its author, and by the trial of it in the log.

Owns the words. Called by `measures.state_trial`. Must not know how it is tried.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from elasticdl.model.measures.moves import Doubt, Movement

log = logging.getLogger(__name__)

_ADVICE = (
    ". One batch shows it so, and a later one may not: say it of each variable "
    '(add_weight(..., aggregation="mean" or "sum"))'
)


def is_mean(variable: Any) -> bool:
    """Whether the variable's author declares it as an average."""
    return bool(variable.aggregation == "mean")


def is_sum(variable: Any) -> bool:
    """Whether the variable's author declares it as a sum."""
    return bool(variable.aggregation == "sum")


def tell_found(found: Sequence[tuple[Any, Movement]]) -> None:
    """Log what portions make of each variable: a trial on one batch may be wrong."""
    for is_declared, level in ((True, logging.INFO), (False, logging.WARNING)):
        some = [of for of in found if (is_sum(of[0]) or is_mean(of[0])) is is_declared]
        averaged = [variable.path for variable, one in some if not np.any(one.adds)]
        added = [
            f"{variable.path} ({_in_words(one)})"
            for variable, one in some
            if np.any(one.adds)
        ]
        words = [
            f"{what}: {', '.join(paths)}"
            for what, paths in (("averaged", averaged), ("added up", added))
            if paths
        ]
        if words:
            log.log(
                level,
                "State of own layers that portions of a step make is %s%s",
                "; ".join(words),
                "" if is_declared else _ADVICE,
            )


def _in_words(one: Movement) -> str:
    least, most = np.min(one.keeps), np.max(one.keeps)
    kept = f"{least:g}" if least == most else f"{least:g} to {most:g}"
    words = f"of whose old value {kept} is kept"
    if np.all(one.adds):
        return words
    return f"{np.sum(one.adds)} of its {np.size(one.adds)} elements, {words}"


def tell_doubt(variable: Any, doubt: Doubt, *, adds: bool = False) -> None:
    if is_sum(variable):
        log.warning(
            'State %s is declared as a sum (aggregation="sum"), so workers of strategy '
            "allReduce add up what portions of a step add to it; but it %s",
            variable.path,
            doubt,
        )
        return
    log.warning(
        "State %s %s. Workers of strategy allReduce %s what portions of a step "
        "make of it, so that it depends on their number; expected a moving average "
        "over records, or a sum of which each step keeps the same share. Say which it "
        'is (aggregation="mean" or "sum" of add_weight), or set strategy: local',
        variable.path,
        doubt,
        "add up" if adds else "average",
    )
