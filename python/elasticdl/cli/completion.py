"""`completion`: the shell's completion script for `elasticdl`.

Owns the verb. The script is made from the parser itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from elasticdl.cli.options.arguments import Verbs, add_verb
from elasticdl.errors import ExitCode

_SHELLS = ("bash", "zsh", "tcsh")


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "completion",
        handler=completion,
        help_text="print a completion script for your shell",
        description="Prints a completion script for your shell. For bash, put the line "
        "below into\n~/.bashrc. For zsh, write the file into a folder of $fpath, as "
        "below, and have\n`fpath=(~/.zfunc $fpath); autoload -U compinit; compinit` in "
        "~/.zshrc.",
        examples=(
            'eval "$(elasticdl completion bash)"',
            "elasticdl completion zsh > ~/.zfunc/_elasticdl",
        ),
    )
    parser.add_argument(
        "shell", choices=_SHELLS, metavar="SHELL", help=f"one of {', '.join(_SHELLS)}"
    )


def completion(args: argparse.Namespace) -> int:
    import shtab

    parser = args.make_parser()
    _complete_files(parser, {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY})
    print(shtab.complete(parser, args.shell))
    return ExitCode.OK


def _complete_files(
    parser: argparse.ArgumentParser, kinds: Mapping[str, object]
) -> None:
    """Mark the arguments that name files or folders, by how the help shows them."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for inner in action.choices.values():
                _complete_files(inner, kinds)
        kind = {"DEST": "DIR", "SOURCE": "FILE", "PATH": "FILE"}.get(
            str(action.metavar), str(action.metavar)
        )
        if kind in kinds:
            action.complete = kinds[kind]  # type: ignore[attr-defined] # shtab's way
