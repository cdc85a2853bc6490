"""The classic flags on the parsers of `train`, `evaluate` and `predict`.

Owns their parsing: every flag is taken down as it was given, and
`job.classic_flags.convert` says what it means. Called by the verbs' parsers and by
`convert-flags`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from elasticdl.job.classic_flags.table import Flag, GivenFlag, flags_of
from elasticdl.job.spec.kinds import JobType
from elasticdl.job.spec.problems import Problem, spec_error

if TYPE_CHECKING:
    from elasticdl.job.classic_flags.convert import ConvertedFlags
    from elasticdl.job.values.document import ValuesFile

_DEST = "classic_flags"
_GROUP = "classic flags"
_SHORT = {"n": "namespace"}
# Where a job runs may be said beside a values file: it is the same job everywhere.
_BESIDE_FILE = ("namespace",)
_GROUP_TEXT = (
    "Another spelling of the fields of a values file; `--num-workers` is as good as\n"
    "`--num_workers`. The model and the data are enough; `elasticdl convert-flags`\n"
    "prints the values file that flags stand for."
)


class TakeDown(argparse.Action):
    """Append the flag, as given, to the list of flags."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        del parser
        name = (option_string or "").lstrip("-").replace("-", "_")
        name = _SHORT.get(name, name)
        text = None if values is None else str(values)
        given = [*(getattr(namespace, self.dest, None) or []), GivenFlag(name, text)]
        setattr(namespace, self.dest, given)


def add_classic_flags(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add every classic flag of a verb to its parser; refused flags are hidden.

    What the parser has as an option of its own (`--yaml`) stays that.
    """
    parser.usage = (
        f"elasticdl {verb} -f FILE [--set PATH=VALUE ...]\n"
        f"       elasticdl {verb} --model_def VALUE ... (classic flags, below)"
    )
    group = parser.add_argument_group(_GROUP, _GROUP_TEXT)
    known = parser._option_string_actions  # noqa: SLF001 - argparse has no public list
    for flag in flags_of(JobType(verb)).values():
        if f"--{flag.name}" in known:
            continue
        _add(group, flag, f"--{flag.name}", _help(flag))
        if "_" in flag.name:
            dashed = f"--{flag.name.replace('_', '-')}"
            _add(group, flag, dashed, argparse.SUPPRESS)


def _add(
    group: argparse._ArgumentGroup,
    flag: Flag,
    option: str,
    text: str,
) -> None:
    group.add_argument(
        option,
        dest=_DEST,
        action=TakeDown,
        nargs="?" if flag.is_switch else None,
        metavar="true|false" if flag.is_switch else "VALUE",
        help=text,
    )


def _help(flag: Flag) -> str:
    if flag.refusal:
        return argparse.SUPPRESS
    text = f"job.{flag.field}"
    return f"{text} ({flag.note})" if flag.note else text


def given_flags(args: argparse.Namespace) -> list[GivenFlag]:
    """Return the classic flags of a parsed command line."""
    return list(getattr(args, _DEST, None) or [])


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> argparse.Namespace:
    """Parse a command line; for a verb with classic flags, unknown arguments are kept.

    So an unknown flag is reported together with all other mistakes, and never ignored:
    `convert_args` and `refuse_beside_file` raise for it. Other verbs exit here.
    """
    args, unknown = parser.parse_known_args(with_verb(arguments))
    if unknown and args.verb not in list(JobType):
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    args.unknown = unknown
    return args


def with_verb(arguments: Sequence[str]) -> list[str]:
    """Return the arguments; `convert-flags --model_def ...` means `train`'s flags.

    argparse would take those flags for its own.
    """
    words = list(arguments)
    at = words.index("convert-flags") + 1 if "convert-flags" in words[:2] else 0
    if at and at < len(words) and words[at].startswith("--") and words[at] != "--help":
        words.insert(at, JobType.TRAIN)
    return words


def convert_args(args: argparse.Namespace, verb: str) -> ConvertedFlags:
    """Return what the classic flags stand for, `--set` laid over it.

    Raises SpecError that names every mistake.
    """
    from elasticdl.job.classic_flags.convert import ConvertedFlags, values_from_flags
    from elasticdl.job.values.file import dump_values, parse_values

    given = given_flags(args)
    words = getattr(args, "unknown", [])
    unknown = unknown_problems(words, verb)
    if not given and words and not any(word.startswith("--") for word in words):
        raise spec_error(unknown)  # that flags are missing, too, would hide it
    if not given and not unknown:
        raise spec_error(
            [
                Problem(
                    f"elasticdl {verb}",
                    "no values file and no flags",
                    "one of them",
                    f"write `elasticdl {verb} -f FILE`, or give --model_def and the "
                    "data",
                )
            ]
        )
    converted = values_from_flags(given, JobType(verb), also=unknown)
    overrides = getattr(args, "overrides", None) or []
    if not overrides:
        return converted
    text = dump_values(converted.values)
    values, problems = parse_values(text, source="flags", overrides=overrides)
    if values is None:
        raise spec_error(problems)
    return ConvertedFlags(values, converted.comments)


def values_from_args(args: argparse.Namespace, verb: str) -> ValuesFile:
    """Return the values that the classic flags of a command line stand for."""
    return convert_args(args, verb).values


def namespace_of(args: argparse.Namespace) -> str:
    """Return the namespace of `-n` or `--namespace`, "" if none was given."""
    given = [flag.text for flag in given_flags(args) if flag.name == "namespace"]
    return (given[-1] or "") if given else ""


def refuse_beside_file(args: argparse.Namespace) -> None:
    """Raise SpecError for flags beside `-f FILE`: neither could take precedence."""
    problems = unknown_problems(getattr(args, "unknown", []), args.verb)
    problems += [
        Problem(
            f"--{flag.name}",
            f"a classic flag beside -f {args.file}",
            "either a values file or flags",
            _as_override(args, flag),
        )
        for flag in given_flags(args)
        if flag.name not in _BESIDE_FILE
    ]
    if problems:
        raise spec_error(problems)


def _as_override(args: argparse.Namespace, given: GivenFlag) -> str:
    flag = flags_of(JobType(args.verb)).get(given.name)
    if flag is None or flag.refusal:
        return "take it out"
    return f"write --set job.{flag.field}=... instead"


def unknown_problems(unknown: Sequence[str], verb: str) -> list[Problem]:
    """Return a problem for each argument that the parser of a verb did not know."""
    from elasticdl.job.classic_flags.convert import unknown_flag

    names = [
        argument[2:].partition("=")[0].replace("-", "_")
        for argument in unknown
        if argument.startswith("--")
    ]
    if unknown and not names:
        words = " ".join(unknown)
        file = next((w for w in unknown if w.endswith((".yaml", ".yml"))), "")
        return [
            Problem(
                f"elasticdl {verb}",
                f"the stray words {words!r}",
                "flags with their values",
                f"a values file is named by -f: elasticdl {verb} -f {file}"
                if file
                else "put values with spaces in quotes",
            )
        ]
    return [unknown_flag(name, JobType(verb)) for name in names]
