"""`completion`: the shell's completion script for `elasticdl`.

Owns the verb. The script is made from the parser itself.
"""

from __future__ import annotations

import argparse

from elasticdl.cli.arguments import Verbs, add_verb
from elasticdl.errors import ExitCode

_SHELLS = ("bash", "zsh", "tcsh")


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "completion",
        handler=completion,
        help_text="print a completion script for your shell",
        examples=(
            'eval "$(elasticdl completion bash)"',
            "elasticdl completion zsh > ~/.zfunc/_elasticdl",
        ),
    )
    parser.add_argument("shell", choices=_SHELLS)


def completion(args: argparse.Namespace) -> int:
    import shtab

    print(shtab.complete(args.make_parser(), args.shell))
    return ExitCode.OK
