"""The PS without its metrics, to see what they cost.

Executed in place of `elasticdl.ps.main`; nothing else is different.
"""

from __future__ import annotations

import sys

from elasticdl.ps import main
from unmeasured import UnmeasuredPs

main.PsMetrics = UnmeasuredPs  # type: ignore[misc] # the point of this file

if __name__ == "__main__":
    sys.exit(main.run())
