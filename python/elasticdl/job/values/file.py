"""Values files: reading with every mistake named, writing, editing in place.

Owns the way from a file to a `ValuesFile` and back. Called by the CLI, the client and
by every role's start. Must not know what any field means: that is `job.spec.job`.

Reading is one quick pass; positions are looked up (`job.values.positions`) and mistakes
put into words (`job.values.checking`) only when there is a mistake.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

from elasticdl.beneath import DEFAULT_MODE, read_text
from elasticdl.errors import SpecError, is_file_away
from elasticdl.files import write_whole
from elasticdl.job.spec.problems import Problem, spec_error
from elasticdl.job.values.aliases import MOST_NODES, too_much
from elasticdl.job.values.bounded import TooMuchError, load_bounded
from elasticdl.job.values.checking import Document, find_problems, validate
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.overrides import (
    Override,
    apply_override,
    parse_override,
    split_path,
)
from elasticdl.job.values.positions import find_positions, order_of, syntax_problem
from elasticdl.job.values.readings import kubernetes_reads_otherwise, two_readings

_MANY_MISTAKES = 100


def load_values(
    path: Path, *, overrides: Sequence[str] = (), root: Path | None = None
) -> ValuesFile:
    """Read a values file, with `a.b=c` overrides laid over it.

    Below `root`, if it is given, no link is followed. Raises SpecError that lists all
    mistakes of the file and of the overrides.
    """
    values, problems = read_values(path, overrides=overrides, root=root)
    if values is None:
        raise spec_error(problems)
    return values


def read_values(
    path: Path, *, overrides: Sequence[str] = (), root: Path | None = None
) -> tuple[ValuesFile | None, list[Problem]]:
    """Return the file's values, or None and all mistakes.

    Below `root`, if it is given, no link is followed. Raises SpecError, with its cause,
    where the file's storage is away.
    """
    try:
        text = read_text(path, root=root) if root else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problems = [_unreadable(path, error)]
        if is_file_away(error):
            raise spec_error(problems) from error
        return None, problems
    return parse_values(text, source=str(path), overrides=overrides)


def read_tree(path: Path, *, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return what stands in a file that `read_values` took, as other tools read it."""
    tree: dict[str, Any] = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    _lay_over(tree, overrides)
    plain: dict[str, Any] = json.loads(json.dumps(tree, default=str))
    return plain


def parse_values(
    text: str, *, source: str, overrides: Sequence[str] = (), bounded: bool = False
) -> tuple[ValuesFile | None, list[Problem]]:
    """Like read_values, of a text; `source` names it in messages.

    `bounded`: another one wrote it, and other work waits; one that would take seconds
    is refused.
    """
    try:
        if bounded:
            return _parsed_bounded(text, source)
        return _parsed(text, source, overrides)
    except RecursionError:
        got = "lists or mappings that are nested too deeply"
        return None, [Problem("", got, "plain YAML", "write it flatter", source)]


def _parsed_bounded(text: str, source: str) -> tuple[ValuesFile | None, list[Problem]]:
    """Like _parsed, with some mistakes alone, and without their positions."""
    try:
        tree = load_bounded(text)
    except TooMuchError as error:
        shorter = "write it shorter; aliases are to be written out"
        return None, [Problem("", str(error), "a shorter text", shorter, source)]
    except YAMLError as error:
        return None, [syntax_problem(error, source)]
    except ValueError as error:
        return None, [Problem("", str(error), "YAML", "put the text in quotes", source)]
    if not isinstance(tree, dict):
        return None, [_not_a_mapping(tree, source)]
    return validated(tree, source)


def validated(
    tree: dict[str, Any], source: str
) -> tuple[ValuesFile | None, list[Problem]]:
    """Return a tree's values, or None and mistakes: a hundred or so, if it has more.

    To word each of thousands takes a minute, and other work waits.
    """
    try:
        return validate(tree), []
    except (ValidationError, TypeError, ValueError, RecursionError):
        document = Document(tree, source, order_of(tree), (), most=_MANY_MISTAKES)
        found = [replace(one, place=source) for one in find_problems(document)]
        if len(found) >= _MANY_MISTAKES:
            more = "more mistakes than are told here"
            found.append(Problem("", more, "none", "correct these first", source))
        return None, found


def _parsed(
    text: str, source: str, overrides: Sequence[str]
) -> tuple[ValuesFile | None, list[Problem]]:
    duplicates = False
    try:
        if nodes := too_much(text):
            return None, [_too_many(nodes, source)]
        tree = YAML(typ="safe").load(text)
    except DuplicateKeyError:
        duplicates = True
        tree = _load_with_duplicates(text)
    except YAMLError as error:
        return None, [syntax_problem(error, source)]
    except ValueError as error:  # a date that is none, as 2024-13-45
        return None, [Problem("", str(error), "YAML", "put the text in quotes", source)]
    if not isinstance(tree, dict):
        return None, [_not_a_mapping(tree, source)]
    otherwise = [] if duplicates else two_readings(text, tree, source)
    applied, problems = _lay_over(tree, overrides)
    if not problems and not duplicates:
        try:
            values = validate(tree)
            return (None, otherwise) if otherwise else (values, [])
        except (ValidationError, TypeError, ValueError, RecursionError):
            pass  # find_problems says what is wrong, with positions
    document = Document(tree, source, find_positions(text), tuple(applied))
    return None, [*problems, *find_problems(document), *otherwise]


def _lay_over(
    tree: dict[str, Any], overrides: Sequence[str]
) -> tuple[list[Override], list[Problem]]:
    applied: list[Override] = []
    problems: list[Problem] = []
    for argument in overrides:
        override = parse_override(argument, tree)
        if isinstance(override, Override):
            override = apply_override(tree, override) or override
        if isinstance(override, Problem):
            problems.append(override)
        else:
            applied.append(override)
    return applied, problems


def dump_values(
    values: ValuesFile, *, comments: Mapping[str, str] | None = None
) -> str:
    """Return the values file's text; fields that hold their default are left out.

    `comments` maps dotted paths to what is to stand behind the field in its line.
    """
    tree: dict[str, Any] = {"kind": values.kind, "job": values.job.document()}
    tree.update(values.chart_keys())
    commented = _for_dump(tree)
    for dotted, text in (comments or {}).items():
        *around, key = split_path(dotted)
        inner = commented
        for part in around:
            inner = inner.get(part, CommentedMap())
        if key in inner:
            inner.yaml_add_eol_comment(text, key)
    return _dumped(commented)


def dump_yaml(tree: Mapping[str, Any]) -> str:
    """Return any tree as text, in the form of values files."""
    return _dumped(_for_dump(tree))


def _dumped(commented: CommentedMap) -> str:
    out = io.StringIO()
    yaml_writer().dump(commented, out)
    return out.getvalue()


def write_values(path: Path, values: ValuesFile) -> None:
    """Write a values file atomically."""
    _replace(path, dump_values(values))


def edit_values(path: Path, changes: Mapping[str, Any]) -> ValuesFile:
    """Set fields by dotted path (None removes a key); comments are kept.

    Returns the new values. Raises SpecError, and leaves the file as it was, when the
    result would not be valid.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise spec_error([_unreadable(path, error)]) from None
    edited, values = edit_text(text, changes, source=str(path))
    _replace(path, edited)
    return values


def edit_text(
    text: str, changes: Mapping[str, Any], *, source: str
) -> tuple[str, ValuesFile]:
    """Like edit_values, of a text; `source` names it in messages."""
    yaml = yaml_writer()
    yaml.preserve_quotes = True
    try:
        tree = yaml.load(text)
    except YAMLError as error:
        raise spec_error([syntax_problem(error, source)]) from None
    if not isinstance(tree, dict):
        raise spec_error([_not_a_mapping(tree, source)])
    problems = []
    for dotted, value in changes.items():
        override = Override(split_path(dotted), value, dotted)
        problem = apply_override(tree, override, remove_none=True)
        if problem is not None:
            problems.append(problem)
    if problems:
        raise spec_error(problems)
    out = io.StringIO()
    yaml.dump(tree, out)
    values, problems = parse_values(out.getvalue(), source=source)
    if values is None:
        raise spec_error(problems)
    return out.getvalue(), values


def yaml_writer() -> YAML:
    """Return the writer of files that people edit."""
    yaml = YAML(typ="rt")
    yaml.width = 4096  # never fold a line that somebody wrote as one
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _for_dump(value: Any) -> Any:
    """Texts of several lines become `|` blocks: code in a file stays legible."""
    if isinstance(value, dict):
        return CommentedMap(
            (_for_dump(key), _for_dump(inner)) for key, inner in value.items()
        )
    if isinstance(value, list):
        return [_for_dump(inner) for inner in value]
    if not isinstance(value, str):
        return value
    if kubernetes_reads_otherwise(value):
        return DoubleQuotedScalarString(value)
    if value.isprintable():
        return value
    lines = value.replace("\t", "").split("\n")
    if all(line.isprintable() for line in lines) and not value[0].isspace():
        return LiteralScalarString(value) if len(lines) > 1 else value
    # The emitter leaves some control characters bare that the scanner takes for spaces.
    return DoubleQuotedScalarString(value)


def _load_with_duplicates(text: str) -> Any:
    yaml = YAML(typ="safe")
    yaml.allow_duplicate_keys = True
    return yaml.load(text)


def _replace(path: Path, text: str) -> None:
    path = path.resolve()  # a link stays a link
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else DEFAULT_MODE
        write_whole(path, text, durable=True, mode=mode)
    except OSError as error:
        raise SpecError(
            f"{path}: cannot be written: {error.strerror}; the file is as it was"
        ) from error


def _unreadable(path: Path, error: OSError | UnicodeDecodeError) -> Problem:
    if isinstance(error, UnicodeDecodeError):
        return Problem(
            "",
            f"bytes that are no UTF-8 at offset {error.start}",
            "a text file",
            "is this the values file?",
            str(path),
        )
    got = {
        FileNotFoundError: "no such file",
        IsADirectoryError: "a folder",
        PermissionError: "a file that may not be read",
    }.get(type(error), error.strerror or str(error))
    return Problem("", got, "a values file", "check the path", str(path))


def _too_many(nodes: int, source: str) -> Problem:
    got = f"aliases that make {nodes:,} entries of it"
    return Problem("", got, f"at most {MOST_NODES:,}", "write fewer of them", source)


def _not_a_mapping(tree: Any, source: str) -> Problem:
    got = "an empty file" if tree is None else "no mapping"
    return Problem(
        "", got, "`kind: job` and a `job:` tree", "see docs/spec.md", f"{source}:1:1"
    )
