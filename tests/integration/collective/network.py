"""A network of a test's own: a namespace for each member, joined by a bridge.

Lines may be slow (`tbf`), lose packets or part two members (nftables), or be down. It
takes Linux and root. Names have this process's number in them, and all are removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys

_TOOLS = ("ip", "nft", "tc")


def impossible() -> str:
    """Return why this machine cannot have such a network; "" if it can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "network namespaces take Linux and root"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"network namespaces take {', '.join(missing)}"
    try:
        with Network() as network:
            network.host(0)
            network.slow(0, megabits=100)
            network.lossy(0, percent=1)
    except AssertionError as error:
        return f"network namespaces cannot be made here: {error}"
    return ""


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


class Network:
    """Members reach each other through a bridge, each by an address of its own."""

    def __init__(self) -> None:
        self._hub = f"edl-{os.getpid()}"
        self._members: set[int] = set()

    def __enter__(self) -> Network:
        run("ip", "netns", "add", self._hub)
        self._in_hub("ip", "link", "add", "bridge", "type", "bridge")
        self._in_hub("ip", "link", "set", "bridge", "up")
        return self

    def __exit__(self, *exc: object) -> None:
        # With a namespace go its ends of the lines.
        for space in [*(self._space(m) for m in self._members), self._hub]:
            with contextlib.suppress(AssertionError):
                run("ip", "netns", "del", space)

    def host(self, member: int) -> str:
        """Return a member's address; its line is laid when it is asked for first."""
        if member not in self._members:
            self._lay(member)
        return f"10.77.0.{member + 1}"

    def command(self, member: int) -> list[str]:
        """Return the words before a command that runs where this member is."""
        return ["ip", "netns", "exec", self._space(member)]

    def _lay(self, member: int) -> None:
        self._members.add(member)
        space, line = self._space(member), f"m{member}"
        run("ip", "netns", "add", space)
        self._in_hub("ip", "link", "add", line, "type", "veth", "peer", "eth0",
                     "netns", space)  # fmt: skip
        self._in_hub("ip", "link", "set", line, "master", "bridge", "up")
        self._at(member, "ip", "address", "add", f"10.77.0.{member + 1}/24",
                 "dev", "eth0")  # fmt: skip
        for device in ("lo", "eth0"):
            self._at(member, "ip", "link", "set", device, "up")
        self._at(member, "nft", "add table inet lines; add chain inet lines input "
                 "{ type filter hook input priority 0; }")  # fmt: skip

    # -- faults ------------------------------------------------------------------------

    def slow(self, member: int, *, megabits: int) -> None:
        """Let a member send no faster.

        The burst has room for the largest segment that TCP hands over: a smaller one
        makes the kernel cut each into packets by itself, as no network card asks it
        to, with cores that members compute on.
        """
        self._at(member, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
                 f"{megabits}mbit", "burst", "128kb", "latency", "50ms")  # fmt: skip

    def lossy(self, member: int, *, percent: int) -> None:
        """Lose some of the packets that come to a member."""
        self._drop(member, f"numgen random mod 100 < {percent} drop")

    def part(self, one: int, other: int) -> None:
        """Let two members hear nothing of each other any more."""
        self._drop(one, f"ip saddr {self.host(other)} drop")
        self._drop(other, f"ip saddr {self.host(one)} drop")

    def heal(self) -> None:
        """Lose nothing any more."""
        for member in self._members:
            self._at(member, "nft", "flush", "chain", "inet", "lines", "input")

    def down(self, member: int) -> None:
        """Take a member's line down."""
        self._in_hub("ip", "link", "set", f"m{member}", "down")

    def up(self, member: int) -> None:
        """Put a member's line up again."""
        self._in_hub("ip", "link", "set", f"m{member}", "up")

    def _drop(self, member: int, rule: str) -> None:
        self._at(member, "nft", f"add rule inet lines input {rule}")

    def _space(self, member: int) -> str:
        return f"{self._hub}-{member}"

    def _in_hub(self, *words: str) -> None:
        run("ip", "netns", "exec", self._hub, *words)

    def _at(self, member: int, *words: str) -> None:
        run(*self.command(member), *words)
