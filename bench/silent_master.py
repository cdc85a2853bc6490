"""The master without its journal, to see what the journal costs.

Executed in place of `elasticdl.master.main`; nothing else is different.
"""

from __future__ import annotations

import os
import sys

from elasticdl.master.main import main
from elasticdl.master.tasks import journal


class SilentJournal(journal.Journal):
    """Keeps nothing."""

    def append(self, event: journal.Event) -> None:
        """Forget the event."""

    async def commit(self) -> None:
        """Return at once."""


journal.Journal = SilentJournal  # type: ignore[misc] # the point of this file
# `elasticdl.master.tasks.ledger` holds the name as well.
sys.modules["elasticdl.master.tasks.ledger"].Journal = SilentJournal  # type: ignore[attr-defined] # as above

if __name__ == "__main__":
    sys.exit(main(os.environ))
