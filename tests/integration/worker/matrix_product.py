"""The cells of the matrix: {features} x {optimizers} x {forms} x {strategies}.

Owns which of them `make test` runs and in which order `make soak` runs the product.
test_matrix.py runs them, matrix_table.py writes them into the docs.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace

from tests.integration.worker.matrix import (
    AS_KERAS,
    FORMS,
    ON_PS,
    STRATEGIES,
    Case,
)
from tests.integration.worker.matrix_optimizers import CROSSED, USUAL, Optimizer

PLAIN = replace(AS_KERAS[0], name="")


@dataclass(frozen=True)
class Cell:
    """A module, the form of its model, and how it trains."""

    case: Case
    form: str
    strategy: str

    @property
    def name(self) -> str:
        """Return what the test is called."""
        return f"{self.case.name}-{self.form}-{self.strategy}"


def cross(feature: Case, optimizer: Optimizer) -> Case:
    """Return the feature's module with this optimizer in place of its own."""
    refused = dict(feature.refused)
    if not optimizer.on_ps:
        sentence = optimizer.name.split("(")[0]
        for strategy in ON_PS:  # whichever is met first
            refused[strategy] = "|".join(
                filter(None, (refused.get(strategy), sentence))
            )
    if feature.rows and "loss_scale_factor" in optimizer.text:
        refused["local"] = "|".join(filter(None, (refused.get("local"), "as rows")))
    return replace(
        feature,
        name=f"{feature.name} with {optimizer.name}"
        if feature.name
        else optimizer.name,
        before=feature.before + optimizer.before,
        optimizer=optimizer.text,
        refused=refused,
        crossed=feature.name,
        summed=feature.rows,
    )


def alone() -> list[Case]:
    """Return each feature, then each usual optimizer on a plain model."""
    return [*AS_KERAS, *(cross(PLAIN, optimizer) for optimizer in USUAL)]


def cells_of_tests() -> list[Cell]:
    """Return what `make test` runs.

    Each feature in each strategy, with PS in another of its forms than without: those
    of one form are trained by Keras once. And each usual optimizer beside a feature,
    forms and strategies in turn. `make soak` has the rest.
    """
    made = [
        Cell(
            feature,
            feature.forms[(number + (strategy in ON_PS)) % len(feature.forms)],
            strategy,
        )
        for number, feature in enumerate(AS_KERAS)
        for strategy in STRATEGIES
    ]
    for number, optimizer in enumerate(USUAL):
        form = PLAIN.forms[number % len(PLAIN.forms)]
        left = [case for case in AS_KERAS if form in case.forms]
        # By rounds, so that each form meets each strategy.
        strategy = STRATEGIES[(number + number // len(PLAIN.forms)) % len(STRATEGIES)]
        made.append(Cell(cross(left[number % len(left)], optimizer), form, strategy))
    return made


def product() -> list[Cell]:
    """Return all cells, in rounds.

    The first round has each feature with each optimizer in each strategy, in forms in
    turn; all three rounds have them in each form too. Those of one module are
    neighbours: Keras trains it once. Else the order is by chance, so that any part is a
    sample of all.
    """
    pairs = list(enumerate(itertools.product(AS_KERAS, (*USUAL, *CROSSED))))
    random.Random(0).shuffle(pairs)
    return [
        Cell(
            cross(feature, optimizer),
            feature.forms[(number + turn) % len(feature.forms)],
            strategy,
        )
        for turn in range(len(FORMS))
        for number, (feature, optimizer) in pairs
        if turn < len(feature.forms)
        for strategy in STRATEGIES
    ]


if __name__ == "__main__":
    print(len(product()))
