"""Writes what is made from the code: pages, files of the chart, dashboards.

Owns the command line, and the pages of the specification and of the verbs.
`python -m docs.generate` writes the files, `--check` fails where one differs from what
is committed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from elasticdl.errors import ExitCode

from docs.generate import kubernetes_types
from docs.generate.chart import CHART, chart_files
from docs.generate.dashboards import dashboard_files
from docs.generate.markdown import row, table
from docs.generate.metrics import metrics_files

_SPEC = "docs/spec.md"
_CLI = "docs/cli.md"
_SCHEMA = f"{CHART}/values.schema.json"
_DEFINITION = f"{CHART}/files/trainingjob.json"
_SPEC_INTRO = """\
# The specification of a job

Made by `make docs` from `python/elasticdl/job/spec/job.py`; do not edit.

A values file holds `kind: job` and the tree `job:` that is described here. The same
file runs here (`elasticdl train -f FILE`) and in a cluster (`helm install NAME
charts/elasticdl -f FILE`); keys beside these two belong to the chart. Keys are
camelCase, and a key that is not in these tables is a mistake. A key without a value
means its default. `elasticdl validate FILE` lists all mistakes of a file;
`--set job.training.epochs=3` lays one field over it (`job.` may be left out).

The last column names the classic flag that spells the field; `elasticdl convert-flags`
turns a whole classic command line into a values file.
"""
_CLI_INTRO = """\
# The command line

Made by `make docs` from the parser of `python/elasticdl/cli`; do not edit.
"""


def main(arguments: Sequence[str]) -> int:
    """Write the files, or compare them; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2])
    args = parser.parse_args(arguments)
    stale = []
    for name, text in generated(args.root):
        file = args.root / name
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not args.check:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    if not args.check:
        print("written: " + (", ".join(stale) or "nothing, all is up to date"))
        return ExitCode.OK
    for name in stale:
        print(f"{name}: differs from the code; run `make docs`", file=sys.stderr)
    return ExitCode.JOB_FAILED if stale else ExitCode.OK


def generated(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each generated file, by its path in the repository, with its text.

    `root`: the repository, for pages of which only a part is made.
    """
    from elasticdl.cli.main import make_parser
    from elasticdl.job.values.schema import values_schema
    from elasticdl.job.values.structural import definition

    yield kubernetes_types.FILE, kubernetes_types.types_file()
    yield _SPEC, spec_page()
    yield _CLI, cli_page(make_parser())
    yield _SCHEMA, json.dumps(values_schema(), indent=2) + "\n"
    yield _DEFINITION, json.dumps(definition(), indent=1) + "\n"
    yield from chart_files()
    yield from dashboard_files(root)
    yield from metrics_files(root)


def spec_page() -> str:
    """Return docs/spec.md."""
    from elasticdl.job.classic_flags.table import FLAGS
    from elasticdl.job.spec.job import JobSpec
    from elasticdl.job.values.fields import documented, section_descriptions

    flags: dict[str, list[str]] = {}
    for flag in FLAGS:
        if flag.field and f"`--{flag.name}`" not in flags.get(flag.field, []):
            flags.setdefault(flag.field, []).append(f"`--{flag.name}`")
    meanings = section_descriptions(JobSpec, "job")
    sections: dict[str, list[str]] = {"job": []}
    for doc in documented(JobSpec, "job"):
        around, _, key = doc.path.rpartition(".")
        field = doc.path.removeprefix("job.")
        section = field.rpartition(".")[0]
        spelled = flags.get(field, flags.get(section, []))
        plain = doc.default in ("required", "empty")
        default = doc.default if plain else f"`{doc.default}`"
        cells = (f"`{key}`", doc.kind, default, doc.description, ", ".join(spelled))
        sections.setdefault(around, []).append(row(cells))
    parts = [_SPEC_INTRO]
    for section, rows in sections.items():
        parts.append(f"## `{section}`\n\n{meanings.get(section, '')}\n")
        parts.append(table(("key", "value", "default", "meaning", "flag"), rows))
    parts.append("## Flags that have no meaning any more\n")
    parts.append("Each is refused with its reason, none is ignored.\n")
    refused = [
        row((f"`--{flag.name}`", _always(flag.always), flag.refusal))
        for flag in FLAGS
        if flag.refusal
    ]
    parts.append(table(("flag", "accepted", "why, and the way on"), refused))
    return "\n".join(parts)


def _always(value: str | None) -> str:
    return "never" if value is None else f"`{value}`, as it always is"


def cli_page(parser: argparse.ArgumentParser) -> str:
    """Return docs/cli.md."""
    parts = [_CLI_INTRO, f"{parser.description}\n"]
    verbs = dict(_verbs(parser))
    rows = [
        row((f"[`{verb}`](#elasticdl-{verb})", summary))
        for verb, (_, summary) in verbs.items()
    ]
    parts.append(table(("command", "what it does"), rows))
    parts.append(_options(parser))
    parts.append(_block(parser.epilog))
    for verb, (inner, _) in verbs.items():
        parts.extend(_verb_page(f"elasticdl {verb}", inner, 2))
    return "\n".join(part for part in parts if part)


def _verb_page(name: str, parser: argparse.ArgumentParser, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} `{name}`\n"
    if parser.description:
        yield f"{parser.description}\n"
    yield _options(parser)
    yield _block(parser.epilog)
    for verb, (inner, _) in _verbs(parser):
        yield from _verb_page(f"{name} {verb}", inner, depth + 1)


def _verbs(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, tuple[argparse.ArgumentParser, str]]]:
    # argparse has no public way to list what a parser knows; its help changes with
    # Python's version, so the page cannot be made of that.
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            helps = {choice.dest: choice.help for choice in action._choices_actions}  # noqa: SLF001
            for verb, inner in action.choices.items():
                yield verb, (inner, helps.get(verb) or "")


def _options(parser: argparse.ArgumentParser) -> str:
    rows = []
    for action in parser._actions:  # noqa: SLF001 - see _verbs
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):  # noqa: SLF001
            continue
        if action.help == argparse.SUPPRESS:
            continue
        metavar = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
        names = ", ".join(action.option_strings)
        shown = f"{names} {metavar}".strip()
        text = (action.help or "").replace("%(default)s", str(action.default))
        rows.append(row((f"`{shown}`", text.replace("%%", "%"))))
    return table(("argument", "meaning"), rows) if rows else ""


def _block(text: str | None) -> str:
    return f"```text\n{text.rstrip()}\n```\n" if text else ""
