"""How long a member that leaves its group stays, so that the model is not lost with it.

Owns that rule. Made by `worker.group.loop`, which carries out the group's orders
meanwhile. Must not know the model, or how others get it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from elasticdl.collective.buffers import Floats
from elasticdl.collective.collective import Collective
from elasticdl.worker.group.link import GroupLink

log = logging.getLogger(__name__)

# How long a worker that leaves waits for the master's answer.
_ANSWER_SECONDS = 1.0


class Leaving:
    """A worker that leaves, from the moment on at which it makes no step any more."""

    def __init__(
        self,
        group: Collective[Floats],
        link: GroupLink,
        *,
        version: Callable[[], int],
        most_seconds: float,
    ) -> None:
        """Say that it leaves.

        Args:
            group: The group that it leaves.
            link: What the master is told by.
            version: Returns that of its model.
            most_seconds: How long the model may take to get elsewhere.
        """
        self._group = group
        self._link = link
        self._most_seconds = most_seconds
        self._told = False
        group.leave()
        link.leave(version)

    def stays(self, seconds: float) -> bool:
        """Whether the worker, which has been leaving for so long, has to stay.

        The master says so. Where it is away, what this worker knows of others counts.
        """
        link = self._link
        if link.stays and not self._told:
            self._told = True
            log.info(
                "No other worker has the model: this one leaves once another one has "
                "it, or a checkpoint"
            )
        if link.goes:
            return False
        known = link.stays or self._has_heirs
        return seconds < (self._most_seconds if known else _ANSWER_SECONDS)

    @property
    def _has_heirs(self) -> bool:
        """Whether others have no state yet, and can get that of this worker alone."""
        link, group = self._link, self._group
        heirs = link.others or link.newcomers or group.sponsors
        return bool(heirs) and group.is_last
