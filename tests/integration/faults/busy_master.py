"""The master, with an event loop that has more to do than it can while a file exists.

Executed in place of `elasticdl.master.main`; nothing else is different.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from elasticdl.master.main import main

FLAG = "BUSY_MASTER_FLAG"
# In each turn of the loop; a call takes several.
_SECONDS = 0.07


class BusyLoops(asyncio.DefaultEventLoopPolicy):
    """Makes loops that are busy."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        loop = super().new_event_loop()
        flag = Path(os.environ[FLAG])

        def work() -> None:
            if flag.exists():
                time.sleep(_SECONDS)
                loop.call_soon(work)
            else:
                loop.call_later(0.05, work)

        loop.call_soon(work)
        return loop


if __name__ == "__main__":
    asyncio.set_event_loop_policy(BusyLoops())
    sys.exit(main(os.environ))
