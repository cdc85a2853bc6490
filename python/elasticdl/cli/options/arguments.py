"""What the verbs' parsers have in common.

Owns the spelling of shared arguments and the form of help texts. Called by the verbs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

from elasticdl.errors import ExitCode

# argparse has no public name for what add_subparsers returns.
Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001
Handler = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line instead of a screen of usage."""

    def error(self, message: str) -> NoReturn:
        """Exit with the message and a hint at `--help`."""
        self.exit(ExitCode.USAGE, f"error: {message}; see `{self.prog} --help`\n")


def add_verb(
    verbs: Verbs,
    name: str,
    *,
    handler: Handler,
    help_text: str,
    description: str = "",
    examples: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """Add a verb with its help, its description and examples."""
    epilog = "examples:\n" + "\n".join(f"  {line}" for line in examples)
    parser = verbs.add_parser(
        name,
        help=help_text,
        description=description or f"{help_text[0].upper()}{help_text[1:]}.",
        epilog=epilog if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(handler=handler)
    return parser


def add_jobs_dir(parser: argparse.ArgumentParser) -> None:
    """Add `--jobs-dir`; `cli.main` resolves it."""
    parser.add_argument(
        "--jobs-dir",
        metavar="DIR",
        help="folder of the jobs' folders (default: $ELASTICDL_JOBS_DIR, or "
        "~/.elasticdl/jobs)",
    )


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add `--set`, as often as wanted: `overrides` of `job.values.load_values`."""
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="set one field, as job.worker.replicas=2; may be repeated",
    )


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for a job's name and the folder of jobs."""
    parser.add_argument("job", metavar="JOB", help="name of the job (`elasticdl list`)")
    add_jobs_dir(parser)


def add_replica(parser: argparse.ArgumentParser) -> None:
    """Add the name of a replica."""
    parser.add_argument(
        "replica", metavar="ROLE-INDEX", help="as worker-1, ps-0, or master"
    )


def positive_seconds(least: float) -> Callable[[str], float]:
    """Return a parser of seconds, `0.5` -> 0.5, at least `least`."""

    def read(text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not least <= seconds < math.inf:
            raise argparse.ArgumentTypeError(
                f"got {text!r}, expected seconds, {least:g} or more"
            )
        return seconds

    return read


def whole_number(text: str) -> int:
    """`3` -> 3. Raises what argparse shows."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number, 0 or more")
    return int(text)
