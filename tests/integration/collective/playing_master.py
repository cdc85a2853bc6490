"""A master's part in a group's life, on real processes: rounds by the real rules."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

from elasticdl.master.model.group.rendezvous import Formed, Standing, decide

from tests.integration.collective.network import Network
from tests.integration.collective.relay import Relay

MEMBER = Path(__file__).with_name("member.py")


@dataclass
class Process:
    child: subprocess.Popen
    reader: threading.Thread
    port: int = 0
    standing: Standing | None = None
    frozen: bool = False


@dataclass
class PlayedMaster:
    """Starts members, names rounds, kills, and compares what members say they made."""

    size: int
    pause: float = 0.0
    slots: int = 0  # of a member's optimizer, each as large as the gradient
    lends: bool = False  # members read each other's vectors where they are
    network: Network | None = None  # else all are on loopback
    delay: float | None = None  # seconds; others reach each member through a relay
    relays: dict[int, Relay] = field(default_factory=dict)
    processes: dict[int, Process] = field(default_factory=dict)
    words: queue.SimpleQueue = field(default_factory=queue.SimpleQueue)
    formed: Formed | None = None
    digests: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    made: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    followed: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    following: dict[int, int] = field(default_factory=dict)  # the next step of each
    firsts: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    acknowledged: dict[int, int] = field(default_factory=dict)  # step -> first record
    times: list[tuple[float, int]] = field(default_factory=list)  # of steps made
    stateless: bool = False
    admits: bool = True  # newcomers that have copied the state
    next_index: int = 0

    def __enter__(self) -> PlayedMaster:
        return self

    def __exit__(self, *exc: object) -> None:
        for relay in self.relays.values():
            relay.close()
        for process in self.processes.values():
            process.child.kill()
            process.child.wait()
            process.reader.join()
            with contextlib.suppress(BrokenPipeError):
                process.child.stdin.close()
            process.child.stdout.close()

    def start(self) -> int:
        index, self.next_index = self.next_index, self.next_index + 1
        host, prefix = "127.0.0.1", []
        if self.network:
            host, prefix = self.network.host(index), self.network.command(index)
        arguments = [index, self.size, self.pause, host, self.slots, int(self.lends)]
        child = subprocess.Popen(
            [*prefix, sys.executable, str(MEMBER), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        reader = threading.Thread(target=self._read, args=(index, child), daemon=True)
        self.processes[index] = Process(child, reader)
        reader.start()
        return index

    def _read(self, index: int, child: subprocess.Popen) -> None:
        for line in child.stdout:
            # Cut off by the kill that the test is about.
            if line.endswith("\n"):
                self.words.put((index, json.loads(line)))
        self.words.put((index, {"ended": True}))

    def kill(self, index: int) -> None:
        self.processes[index].child.send_signal(signal.SIGKILL)

    def freeze(self, index: int) -> None:
        os.kill(self.processes[index].child.pid, signal.SIGSTOP)
        self.processes[index].frozen = True

    def version(self) -> int:
        return max(self.digests, default=-1) + 1

    def run_until(self, condition, *, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, f"not in {seconds} s: {self.formed}"
            try:
                index, word = self.words.get(timeout=0.02)
                self._hear(index, word)
            except queue.Empty:
                pass
            self._decide()

    def silence(self, index: int) -> None:
        """Count a frozen member as silent, as the master's heartbeats would."""
        self.processes[index] = replace(self.processes[index], standing=None)

    def thaw(self, index: int) -> None:
        """Let a frozen member go on, and hear it: it may have missed rounds."""
        process = self.processes[index]
        process.child.send_signal(signal.SIGCONT)
        process.standing = Standing(index, ready_at=time.time(), copied=False)
        process.frozen = False
        self._say_round(index)

    def _hear(self, index: int, word: dict) -> None:
        process = self.processes[index]
        match word:
            case {"port": port}:
                process.port = port
                if self.delay is not None:
                    relay = self.relays[index] = Relay(port, delay=self.delay)
                    process.port = relay.port
                process.standing = Standing(index, ready_at=time.time(), copied=False)
                self._say_round(index)
            case {"copied": copied} if process.standing:
                process.standing = replace(process.standing, copied=copied)
            case {"followed": step}:
                self.followed[index].append(step)
                self.following[index] = step + 1
            case {"made": step, "first": first, "digest": digest}:
                self.digests[step].add(digest)
                self.firsts[step].add(first)
                self.made[index].append(step)
                assert step == self.following.get(index, step), f"member {index} jumps"
                self.following[index] = step + 1
                self.times.append((time.monotonic(), index))
            case {"took": version, "digest": digest}:
                self.following[index] = version
                if version:
                    self.digests[version - 1].add(digest)
            case {"acknowledged": step, "first": first}:
                self.acknowledged[step] = first
            case {"broken": number, "lost": lost} if process.standing:
                process.standing = replace(
                    process.standing, broken=number, broken_at=time.time(), lost=lost
                )
            case {"stateless": _}:
                self.stateless = True
            case {"ended": _}:
                process.standing = None

    def _decide(self) -> None:
        standings = [p.standing for p in self.processes.values() if p.standing]
        if not self.admits:
            standings = [replace(one, copied=False) for one in standings]
        formed = decide(
            self.formed, standings, begins=not self.acknowledged, now=time.time()
        )
        if formed is None:
            return
        self.formed = formed
        for index, process in self.processes.items():
            if process.standing:
                self._say_round(index)

    def _say_round(self, index: int) -> None:
        formed = self.formed
        if formed is None:
            return
        word = {
            "number": formed.round.number,
            "members": formed.round.members,
            "since": formed.round.since,
            "begins": formed.round.begins,
            "addresses": {
                m: f"{self._host(m)}:{self.processes[m].port}"
                for m in formed.round.members
            },
        }
        stdin = self.processes[index].child.stdin
        # It may have just ended: its reader says so.
        with contextlib.suppress(BrokenPipeError, OSError):
            stdin.write(json.dumps(word) + "\n")
            stdin.flush()

    def _host(self, index: int) -> str:
        return self.network.host(index) if self.network else "127.0.0.1"

    def check(self) -> None:
        """Compare what all members have made."""
        differing = {step for step, digests in self.digests.items() if len(digests) > 1}
        assert not differing, f"members differ after steps {sorted(differing)[:5]}"
        assert not {s for s, f in self.firsts.items() if len(f) > 1}, (
            "two plans applied"
        )
        for step, first in self.acknowledged.items():
            assert self.firsts[step] == {first}, (
                f"step {step} was acknowledged, not made"
            )


def settle(master: PlayedMaster, more: int = 5) -> None:
    """Wait until each member of the round has made some steps from now on."""
    before = {index: len(made) for index, made in master.made.items()}

    def settled() -> bool:
        members = master.formed.round.members
        return all(len(master.made[m]) >= before.get(m, 0) + more for m in members)

    master.run_until(settled)


def kill_at_random(
    size: int, kills: int, *, seed: int, lends: bool = False
) -> list[float]:
    """Kill the oldest, any member, or two at once, at random moments, and compare.

    Returns, by kill, the longest time between two steps of a member that was left.
    """
    rng = random.Random(seed)
    pauses = []
    with PlayedMaster(size, lends=lends) as master:
        for _ in range(4):
            master.start()
        full = lambda: master.formed and len(master.formed.round.members) == 4  # noqa: E731
        master.run_until(full)
        settle(master)
        for _ in range(kills):
            members = list(master.formed.round.members)
            victims = rng.choice(([members[0]], [rng.choice(members)], members[:2]))
            moment = time.monotonic() + rng.random() * 0.05
            master.run_until(lambda at=moment: time.monotonic() >= at)
            since = len(master.times)
            for victim in victims:
                master.kill(victim)
            settle(master)
            pauses.append(longest_pause(master.times[since:]))
            for _ in victims:
                master.start()
            master.run_until(full)
            settle(master)
        master.check()
        assert not master.stateless
        assert len(master.acknowledged) > kills
    return pauses


def longest_pause(times: list[tuple[float, int]]) -> float:
    """Return the longest time between two steps of one member."""
    last: dict[int, float] = {}
    longest = 0.0
    for at, index in times:
        longest = max(longest, at - last.get(index, at))
        last[index] = at
    return longest
