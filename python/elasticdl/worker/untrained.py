"""What a model does not train, out of a checkpoint.

Owns where such a variable is looked for, and which of them must be there. Called by
strategy local and by jobs that do not train, which hold a whole checkpoint; PS 0 does
the same for its workers (ps/untrained_state.py). Knows nothing of optimizers.

A layer may have been trained by the job that wrote the checkpoint and be frozen here,
or the other way round: its weights are among the checkpoint's values then, or among its
states, under one name.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticdl.errors import CheckpointError, RefusedError, UnfitError
from elasticdl.model.state import ModelState, read_state, write_state
from elasticdl.model.variables import NamedVariable, mismatches
from elasticdl.tensor.codec import Array

log = logging.getLogger(__name__)


class UntrainedVariables:
    """Frozen weights, which all workers get from PS 0 so that they are equal."""

    def __init__(self, variables: Sequence[NamedVariable]) -> None:
        """Take a built model's variables."""
        self._variables = variables

    def read(self) -> Mapping[str, Array]:
        """Return the weights by variable."""
        return read_state(self._variables)

    def take(self, arrays: Mapping[str, Array]) -> None:
        """Set the weights. Raises RefusedError naming missing or misfitting ones.

        PS that loaded a checkpoint by themselves have what that has.
        """
        try:
            check_untrained(self._variables, self._variables, arrays, "the PS's state")
        except CheckpointError as error:
            raise RefusedError(str(error)) from error
        write_state(self._variables, arrays)


def load_untrained(state: ModelState, arrays: Mapping[str, Array], path: Path) -> None:
    """Set the untrained weights by name; log those that the checkpoint lacks.

    `arrays` are its values and states. Raises UnfitError naming the frozen weights
    that are not among them (nothing would ever make them what they were), and whatever
    has another shape.
    """
    check_untrained(state.everything, state.frozen, arrays, path)
    moving, kept = write_state(state.shared, arrays), write_state(state.own, arrays)
    write_state(state.frozen, arrays)
    if moving:
        log.warning(
            "%s has no state for %s: it begins as the model makes it",
            path,
            ", ".join(moving),
        )
    if kept:
        # PS write no seeds and no counters: so it is after each resume.
        log.info("%s has no %s: they begin anew", path, ", ".join(kept))


def check_untrained(
    expected: Sequence[NamedVariable],
    needed: Sequence[NamedVariable],
    arrays: Mapping[str, Array],
    where: Path | str,
) -> None:
    """Raise UnfitError unless everything needed is present and fits."""
    wrong = mismatches(expected, needed, arrays)
    if wrong:
        raise UnfitError(
            f"{where}: does not fit what the model does not train (trainable=False): "
            f"{'; '.join(wrong)}; expected a checkpoint of a model that has them"
        )
