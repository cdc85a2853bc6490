"""Async mode: each gradient makes a version of its own, as it comes.

Owns what staleness means. Called by ps/server.py under its lock.
"""

from __future__ import annotations

from elasticdl.job.tasks import Ticket
from elasticdl.ps.parameters import Parameters, Push
from elasticdl.ps.updater import Control, PushAnswer
from elasticdl.rpc.ps.tensors import STALE


class AsyncUpdater:
    """Updater that applies each gradient at once."""

    def __init__(
        self,
        parameters: Parameters,
        *,
        control: Control,
        staleness_modulation: bool,
        max_staleness: int,
        leads_state: bool,
    ) -> None:
        """`max_staleness` 0 accepts a gradient of any age.

        `leads_state`: averages are led over the versions that their shares come late;
        not where workers apply their own gradients between two pulls, as their shares
        are of weights that no version has.

        With several PS only PS 0 is given a bound: the worker asks it first, so that
        all PS take a gradient or none does.
        """
        self._parameters = parameters
        self._control = control
        self._modulation = staleness_modulation
        self._max_staleness = max_staleness
        self._leads_state = leads_state

    @property
    def follows(self) -> bool:
        return False

    @property
    def ticket(self) -> Ticket | None:
        return None

    def push(self, push: Push) -> PushAnswer:
        parameters = self._parameters
        if push.push_id in parameters.pushed:
            return PushAnswer(True, parameters.version, duplicate=True)
        parameters.check(push)
        # A worker may be ahead of a PS that went back to its newest shard.
        staleness = max(0, parameters.version - push.version)
        if self._max_staleness and staleness > self._max_staleness:
            return PushAnswer(False, parameters.version, STALE)
        factor = self._control.learning_rate_scale
        if self._modulation:
            factor /= max(1, staleness)
        late = staleness if self._leads_state else None
        parameters.apply((push,), rate_factor=factor, late=late)
        return PushAnswer(True, parameters.version, staleness=staleness)

    def advance(self, ticket: Ticket) -> None:
        """Do nothing: async PS have no common version."""

    def announce(self, snapshot: str) -> None:
        """Do nothing: the master asks each PS for its own snapshot."""

    def control(self, control: Control) -> None:
        self._control = control

    def close(self, error: Exception) -> None:
        """Do nothing: nobody waits."""
