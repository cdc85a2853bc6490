"""Names and documents of a checkpoint on disk.

Owns the format. Written by the PS (shards) and the master (manifest), read by PS,
workers and the CLI. Knows nothing of who decides when.

    <dir>/version-<V>/         `version-<V>.<k>` where that name was taken
        shard-<i>-of-<N>.edl   one frame (tensor/codec.py), written aside and renamed
        manifest.json          written last: a folder without it is torn and is skipped
    <dir>/pending-<run>-...    being written; its name becomes that of a version
    <dir>/abandoned-...        of a course that a rewind has undone, or damaged

A checkpoint's identity is in its manifest: the run that wrote it (the id of the job's
journal), the rewind before it, and the size and checksum of each shard. A folder's name
alone tells nothing.

Tensors in a shard are named `<kind>|<variable>|<start row>|<end row>`; kind is
`value`, `slot:<name>` (optimizer slot of the same shape), `state` (non-trainable), or
`scalar:<name>` (a slot of one number per PS). Any number of PS can load it, because
rows are named by variable and range, not by place. The shard's meta is JSON:
{"version", "layout", "layout_digest", "optimizer"}. Tables: `table:<name>|ids` and
`table:<name>|rows|<slot>` are kept free for hash embedding tables.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

MANIFEST = "manifest.json"
# Kinds of tensors; SLOT and SCALAR are followed by the slot's name.
VALUE, SLOT, STATE, SCALAR = "value", "slot:", "state", "scalar:"
# The slot of values averaged over steps (Keras's use_ema), and the name that they are
# pulled by, like a snapshot.
# Scalars. At which version the optimizer was new; nothing is version 0 (PS).
FIRST_STEP = "first_step"
ITERATIONS = "iterations"  # its count of steps (strategy local)
# The rate that an optimizer moved by itself, and what it had been set to.
OWN_RATE, SET_RATE = "own_rate", "set_rate"
AVERAGE = "average"
_VERSION = re.compile(r"version-(\d+)(?:\.(\d+))?")
# Whoever writes a checkpoint could have those look at any file who read it.
_FILE = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
PENDING = "pending-"
ABANDONED = "abandoned-"
# 2: with the run that wrote it. What older ones wrote has none, and can be read.
FORMAT = 2


class ShardFile(BaseModel):
    """One shard as the manifest names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    file: str = Field(pattern=_FILE)
    bytes: int
    crc32: int
    version: int  # async PS differ by a few


class Manifest(BaseModel):
    """A checkpoint's manifest, written last; without one a checkpoint is incomplete."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    format: int = FORMAT
    job: str
    run: str = ""  # of the journal that it belongs to; "": an older ElasticDL wrote it
    strategy: str
    version: int  # of PS 0
    shards: list[ShardFile]
    # Where the data stood (master/tasks/queue.py: position), so that a resumed job goes
    # on in the middle of its epoch.
    position: dict[str, Any] = Field(default_factory=dict)
    rewind: int = 0  # the run's rewinds before it: of two, the one of more is the newer
    time: float = 0.0

    @property
    def total_bytes(self) -> int:
        """Of all shards."""
        return sum(shard.bytes for shard in self.shards)


def version_dir(version: int, again: int = 0) -> str:
    """Return a version's folder name; `again` counts repeats of a version."""
    return f"version-{version}.{again}" if again else f"version-{version}"


def parse_version_dir(name: str) -> tuple[int, int] | None:
    """Return version and count of a folder's name, None if it is not one."""
    match = _VERSION.fullmatch(name)
    return (int(match[1]), int(match[2] or 0)) if match else None


def shard_file(index: int, total: int) -> str:
    """Return the name of a shard file."""
    return f"shard-{index}-of-{total}.edl"


def is_shard_file(name: str) -> bool:
    """Whether a name may be that of a shard: it is one in the checkpoint's folder."""
    return re.match(_FILE, name) is not None and not name.endswith("\n")


def tensor_name(kind: str, name: str, start: int = 0, end: int = 0) -> str:
    """Return a tensor's name in a shard: `<kind>|<name>|<start row>|<end row>`."""
    return f"{kind}|{name}|{start}|{end}"


def parse_tensor_name(text: str) -> tuple[str, str, int, int]:
    """Return kind, name, start and end row. Raises ValueError if it is not one."""
    kind, rest = text.split("|", 1)
    name, start, end = rest.rsplit("|", 2)
    return kind, name, int(start), int(end)
