"""The grant in force: what the annotation says, as far as it holds now.

Owns the annotation's last text and what was said of it. Called with a new text by
whoever follows the job's ConfigMap, and by the loop each turn, since time and live
edits change what holds. Sets `MemberTable.grant`, by which `MemberTable.wanted` goes.
Must not start or stop anybody.

Nothing of it is in the journal: the next master reads the annotation before its first
turn.
"""

from __future__ import annotations

import logging

from elasticdl.job.grant import Grant, Read, parse_grant, what_holds
from elasticdl.master.happenings import Diary, GrantEnded, GrantRefused, SizeGranted
from elasticdl.master.members.table import MemberTable

log = logging.getLogger(__name__)


class Granted:
    """How many workers the job was given, until when and why."""

    def __init__(self, table: MemberTable, diary: Diary) -> None:
        """Begin without a grant."""
        self._table = table
        self._diary = diary
        self._text = ""
        self._read = Read(None)
        self._said = ""  # of the refusals, the last one
        self.refusals = 0

    @property
    def grant(self) -> Grant | None:
        """The grant in force."""
        return self._table.grant

    def take(self, text: str, *, now: float) -> bool:
        """Take the annotation's text; return whether another number is wanted now."""
        if text != self._text:
            self._text, self._read = text, parse_grant(text)
        return self.look(now=now)

    def look(self, *, now: float) -> bool:
        """Find out what holds now; return whether another number is wanted."""
        if self._read == Read(None) and self._table.grant is None:
            return False
        table = self._table
        before, held = table.wanted, table.grant
        holds = what_holds(
            self._read,
            table.spec.worker,
            known=range(table.workers_so_far),
            now=now,
        )
        table.go_by(holds.grant)
        after = table.wanted
        if held is not None and holds.grant is None:
            self._diary.say(GrantEnded(time=now, before=before, workers=after))
            log.info("nothing is granted any more: %d workers are wanted", after)
        elif holds.refused and holds.refused != self._said:
            self.refusals += 1
            self._diary.say(GrantRefused(time=now, text=holds.refused))
            log.warning("%s", holds.refused)
        read = self._read.grant
        over = read is not None and read.expired(now=now)
        if held is None or holds.grant is not None or over:
            self._said = holds.refused
        if holds.grant is not None and after != before:
            why = holds.grant.why
            self._diary.say(
                SizeGranted(time=now, before=before, workers=after, why=why)
            )
            log.info("granted: workers %d -> %d: %s", before, after, why)
        return after != before
