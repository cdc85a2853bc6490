"""`elasticdl convert-flags`: the values file that a classic command line stands for.

Owns the reading of a pasted command line. What flags mean is in
`job.classic_flags.convert`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence

from elasticdl.cli import submit
from elasticdl.cli.options import flags
from elasticdl.cli.options.arguments import Verbs, add_verb
from elasticdl.errors import ExitCode, SpecError
from elasticdl.job.spec.kinds import JobType
from elasticdl.job.spec.problems import did_you_mean

_VERBS = [str(verb) for verb in JobType]


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "convert-flags",
        handler=convert,
        help_text="print the values file that a classic command line stands for",
        description="Prints the values file that a classic command line stands for. "
        "Paste the whole line\nbehind `convert-flags`, or pipe it in with `-`; without "
        "a command, the flags are those of\n`train`.",
        examples=(
            "elasticdl convert-flags train --model_def mnist.cnn.custom_model "
            "--training_data data/mnist > values/mnist.yaml",
            "elasticdl convert-flags elasticdl train --num_workers=3 ...",
            "elasticdl convert-flags - < old-command.sh",
        ),
    )
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="train|evaluate|predict FLAGS",
        help="the classic command line; `-` reads it from standard input",
    )


def convert(args: argparse.Namespace) -> int:
    """Print the values file. Raises SpecError that names every wrong flag."""
    words = list(args.command)
    if words == ["-"]:
        words = split_command(sys.stdin.read())
    elif len(words) == 1:
        words = split_command(words[0])
    print(convert_command(words), end="")
    return ExitCode.OK


def split_command(text: str) -> list[str]:
    r"""Return the words of a shell command; a `\` at a line's end joins lines."""
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise SpecError(f"the command line cannot be read: {error}; close it") from None


def convert_command(words: Sequence[str]) -> str:
    """Return the text of the values file that a command's words stand for."""
    from elasticdl.job.values.file import dump_values, parse_values

    verb, rest = _verb_of(words)
    parser = argparse.ArgumentParser(
        prog=f"elasticdl {verb}", allow_abbrev=False, add_help=False
    )
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    submit.add_options(parser)
    flags.add_classic_flags(parser, verb)
    parser.error = _raise  # type: ignore[method-assign,assignment]  # as a SpecError, not an exit
    parser.set_defaults(verb=verb)
    args = flags.parse(parser, rest)
    converted = flags.convert_args(args, verb)
    text = dump_values(converted.values, comments=converted.comments)
    values, problems = parse_values(text, source="values")
    if values != converted.values:
        raise SpecError(f"the flags cannot be written as a values file: {problems}")
    command = " ".join(["elasticdl", verb, "-f", "FILE", *submit.given_options(args)])
    return (
        f"# Made of classic flags by `elasticdl convert-flags`; run: {command}\n{text}"
    )


def _verb_of(words: Sequence[str]) -> tuple[str, list[str]]:
    for number, word in enumerate(words):
        if word in _VERBS:
            return word, list(words[number + 1 :])
        if word == "zoo":
            raise SpecError(
                "elasticdl zoo: got a command that makes images, expected one that "
                "runs a job (train, evaluate or predict); `elasticdl zoo` itself works "
                "as it always did"
            )
        if word.startswith("--"):
            if set(words[:number]) <= {"elasticdl"}:
                return str(JobType.TRAIN), list(words[number:])
            break
    wrong = next((word for word in words if not word.startswith("-")), "")
    if not words:
        raise SpecError(
            "got nothing, expected a classic command line; paste it behind "
            "`elasticdl convert-flags`"
        )
    raise SpecError(
        f"got {' '.join(words[:3])!r}, expected a command: train, evaluate or predict; "
        f"{did_you_mean(wrong, _VERBS)}"
    )


def _raise(message: str) -> None:
    raise SpecError(f"{message}; see `elasticdl train --help`")
