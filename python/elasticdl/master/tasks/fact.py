"""A fact of a job's journal: what all kinds have in common.

Owns how a fact is stored (with its name and version) and by what rules it is kept. The
kinds are subclasses in `master.tasks.facts` and `master.tasks.model_facts`; stored by
`master.tasks.ledger` and kept by `master.tasks.notes`. Must not know any kind.

A field that is added gets a default, which stands for it in journals of before; fields
that this version does not know are passed over, so that an earlier version can go on
with a journal. What means something else than before gets a new `VERSION`: versions
that know only the older one refuse it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

# As many of a kind that is listed, the newest.
MOST = 10_000

STATE = "state"  # the kind of those facts of which a job has one at a time
VERSION_KEY = "v"  # where a stored fact has its version; none is version 1


class Fact(BaseModel):
    """A durable finding or decision of a master that its successor must know."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")

    KIND: ClassVar[str]
    NAME: ClassVar[str] = ""  # that all facts of this class have, beside their kind
    VERSION: ClassVar[int] = 1
    # How much is kept: the newest of each name, one with the sum of a field, or KEPT.
    NEWEST: ClassVar[bool] = False
    SUM: ClassVar[str] = ""
    KEPT: ClassVar[int] = MOST

    @property
    def key(self) -> str | None:
        """The name of which this fact is the newest, for kinds kept by name."""
        return self.NAME or getattr(self, "name", None)

    def tree(self) -> dict[str, Any]:
        """Return the stored form; `read` parses it."""
        tree: dict[str, Any] = {"name": self.NAME} if self.NAME else {}
        if self.VERSION > 1:
            tree[VERSION_KEY] = self.VERSION
        return {**tree, **self.model_dump(mode="json")}

    def plus(self, other: Self) -> Self:
        """Return the sum of two facts, for kinds of which the sum is kept."""
        total = getattr(self, self.SUM) + getattr(other, self.SUM)
        return self.model_copy(update={self.SUM: total})


class StateFact(Fact):
    """A fact that a job has once; stored under a name of its own."""

    KIND = STATE
    NEWEST = True
