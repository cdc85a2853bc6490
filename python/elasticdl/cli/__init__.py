"""The command line: parse, call `client`, print; one file per verb.

Owns the entry point of the `elasticdl` script, which is here since what it imports
takes its time, and Ctrl-C may come meanwhile.
"""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command of this process's arguments; leave with its exit code."""
    try:
        from elasticdl.cli.main import run as run_command

        run_command()
    except KeyboardInterrupt:
        from elasticdl.errors import ExitCode

        print("stopped before the command began", file=sys.stderr)
        sys.exit(ExitCode.STOPPED)
