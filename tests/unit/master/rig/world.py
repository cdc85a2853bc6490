"""What the scripted replicas of a master under test share, and tests set.

Made by `tests.unit.master.conftest`, whose replicas read it; it does nothing itself.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable

from elasticdl.job.heartbeats import PsView
from elasticdl.job.tasks import Task


class World:
    """What scripted replicas share: the model version, and how they behave."""

    def __init__(self) -> None:
        self.version = 0
        self.go = asyncio.Event()  # training goes on while it is set
        self.go.set()
        self.pause_after = sys.maxsize  # tasks that are trained; others wait then
        self.mute: set[str] = set()  # these send no heartbeats
        self.stuck: set[str] = set()  # these make no step
        self.writes_seconds = 0.0  # a worker that writes the model is so long in a step
        self.trained: list[tuple[str, int, int, int]] = []  # who, epoch, start, end
        self.summaries: list[float] = []
        self.ready: dict[str, object] = {}
        self.fail: Callable[[Task], str] = lambda task: ""
        self.results: Callable[[int], dict[str, float]] = lambda n: {"accuracy": 0.9}
        self.quorums: list[int] = []
        self.scales: list[float] = []
        self.views: dict[str, PsView] = {}
        self.types: list[int] = []
        self.restored: list[tuple[str, str, bool]] = []
        self.rewinds: list[int] = []
        self.late: list[bool] = []
        self.disk_full = False
        self.pins_for_evaluation = True  # a PS takes the snapshots it is asked for
        self.damaged: set[str] = set()  # checkpoints that no replica can load
        self.loaded: set[str] = set()
        self.foreign: set[str] = set()  # checkpoints whose optimizer no PS can run
        self.brought = False  # a worker could call all PS, and brought them another
        self.can_load = ""  # but this one, which waits for `go` then
        self.fenced: set[str] = set()
        self.at_work: set[str] = set()  # who was given a task
        self.beats_per_part = 0  # a PS reports bytes in so many before a part is there
        self.before: Callable[[Task], Awaitable[None]] | None = None
        self.pulled: int | None = None  # version of the values that all workers hold
        self.bytes = 0  # that each PS holds
        self.warning = ""  # of each PS, of what it has not taken over
        self.handed: int | None = None  # version of the values handed to a PS

    def pausing(self) -> bool:
        """Whether tasks of training wait."""
        return not self.go.is_set() or len(self.trained) >= self.pause_after
