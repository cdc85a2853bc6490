"""Mistakes in a values file, put into plain words, all of them at once.

Owns the validation of a tree and the translation of its errors. Called by
`job.values.file`. Must not read files.

The models' own rules (`replicas` at most `max`) run only on models whose fields are all
valid. To report them together with the others, what is wrong is corrected or taken out
of a copy, and the copy is checked again, until nothing new is found.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from elasticdl.job.spec.problems import (
    Problem,
    ProblemsError,
    did_you_mean,
    nearest,
    same_word,
)
from elasticdl.job.values import fields, wording
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.overrides import Override
from elasticdl.job.values.positions import Path, Positions, key_text

_MAX_PASSES = 10  # Each pass mends one level of wrong keys; files are not deeper.
# Stand for fields that have to be given, so that the rest can be checked without them.
_PLACEHOLDERS: dict[str, Any] = {
    "kind": "job",
    "job": {},
    "name": "name",
    "model": {"definition": "a.b"},
    "mountPath": "/",
}
# Sections that are never the chart's: at the top level their `job:` is missing.
_ONLY_IN_JOB = (
    "checkpoint", "data", "evaluation", "export", "model", "strategy", "tasks",
    "training",
)  # fmt: skip


@dataclass(frozen=True)
class Document:
    """A parsed values file, with what is needed to locate mistakes."""

    tree: dict[str, Any]
    source: str
    positions: Positions
    overrides: tuple[Override, ...]
    most: int | None = None  # mistakes of a pass that are looked at; None: all


def validate(tree: Mapping[str, Any]) -> ValuesFile:
    """Return the typed values. Raises ValidationError, or ValueError if not JSON-like.

    Strict and by way of JSON: `"3"` is no number and `1` no text, just as the schema
    that the chart uses has it.
    """
    if "kind" not in tree:
        raise ValueError("kind is missing")
    if _misplaced(tree):
        raise ValueError("a key stands at the wrong level")
    plain = json.loads(json.dumps(tree, default=str))
    clean = fields.as_read(ValuesFile, plain)
    values = ValuesFile.model_validate_json(
        json.dumps(clean), strict=True, by_alias=True, by_name=False
    )
    if _has_twins(tree):
        raise ValueError("a key stands there twice")
    return values


def _has_twins(tree: Any) -> bool:
    """Whether keys of a mapping are the same text, as 0 and "0", true and "true"."""
    if isinstance(tree, dict):
        return len({key_text(key) for key in tree}) < len(tree) or any(
            _has_twins(value) for value in tree.values()
        )
    return isinstance(tree, list) and any(_has_twins(value) for value in tree)


def find_problems(document: Document) -> list[Problem]:
    """Return all mistakes of a document, in the order of its lines."""
    try:
        finder = _Finder(document)
        finder.run()
    except (RecursionError, TypeError, ValueError) as error:
        got = "an alias inside itself" if _circular(error) else str(error)
        return [Problem("", got, "plain YAML", "write it out", document.source)]
    return finder.in_order()


def _circular(error: Exception) -> bool:
    return isinstance(error, RecursionError) or "ircular" in str(error)


def _misplaced(tree: Mapping[str, Any]) -> list[str]:
    """Return top-level keys that misspell `job` or `kind`, or belong in the job."""
    wrong = []
    known = fields.known_keys(ValuesFile, ())
    for key in map(str, tree):
        if key in known and not (key == "jobs" and _is_a_job(tree)):
            continue
        near = nearest(key, ("job", "kind"))
        if (near and near not in tree) or key in _ONLY_IN_JOB:
            wrong.append(key)
    return wrong


def _is_a_job(tree: Mapping[str, Any]) -> bool:
    """Whether `jobs`, the platform's key for all jobs, was used for a single job."""
    there = tree["jobs"]
    known = set(fields.known_keys(ValuesFile, ("job",)))
    return "job" not in tree and isinstance(there, dict) and bool(known & set(there))


class _Finder:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._tree: dict[str, Any] = json.loads(json.dumps(document.tree, default=str))
        self._found: list[tuple[tuple[int, int], Problem]] = []
        self._handled: set[Path] = set()
        self._renamed: dict[Path, Path] = {}

    def in_order(self) -> list[Problem]:
        return [problem for _, problem in sorted(self._found, key=lambda pair: pair[0])]

    def run(self) -> None:
        for path, at, first in self._document.positions.duplicates:
            problem = Problem(
                wording.dotted(path), "the key a second time",
                f"each key once (first in line {first})", "remove one of them",
            )  # fmt: skip
            self._add(path, problem, at)
        self._top_level()
        for _ in range(_MAX_PASSES):
            try:
                validate(self._tree)
            except ValidationError as error:
                if not self._one_pass(error) or self._has_enough:
                    return
            else:
                return

    @property
    def _has_enough(self) -> bool:
        most = self._document.most
        return most is not None and len(self._found) >= most

    def _top_level(self) -> None:
        for key in _misplaced(self._tree):
            near = nearest(key, ("job", "kind"))
            if near and near not in self._tree:
                self._unknown((key,), f"did you mean `{near}`?")
                self._rename((key,), near)
                continue
            problem = Problem(
                key, "a section of the job", "it below `job:`",
                "indent it, two spaces deeper than `job:`",
            )  # fmt: skip
            self._add((key,), problem, self._document.positions.of_key((key,)))
            value = self._tree.pop(key)
            job = self._tree.setdefault("job", {})
            if isinstance(job, dict) and key not in job:
                job[key] = value
                self._renamed["job", key] = (key,)
        for key in ("kind", "job"):
            if key not in self._tree:
                self._missing((key,))
                self._tree[key] = copy.deepcopy(_PLACEHOLDERS[key])

    def _one_pass(self, error: ValidationError) -> bool:
        before = json.dumps(self._tree)
        for item in error.errors(include_url=False)[: self._document.most]:
            path = tuple(part for part in item["loc"] if part != "[key]")
            if fields.is_alternative(ValuesFile, path):
                path = path[:-1]
            self._one_error(path, dict(item))
        return json.dumps(self._tree) != before

    def _one_error(self, path: Path, item: dict[str, Any]) -> None:
        kind = item["type"]
        cause = item.get("ctx", {}).get("error")
        if kind == "json_invalid":  # half a character, or 200 levels
            raise ValueError(f"what JSON cannot hold ({cause})")
        if kind == "missing":
            if not self._is_handled(path):
                self._missing(path)
            self._put(path, copy.deepcopy(_PLACEHOLDERS.get(str(path[-1]), "")))
        elif kind == "extra_forbidden":
            self._unknown_key(path)
        elif isinstance(cause, ProblemsError):
            self._broken_rules(path, cause)
        else:
            if not self._is_handled(path):
                at = self._document.positions.of_value(self._original(path))
                self._add(path, wording.wrong_value(path, item), at)
            self._correct(path, item["input"])

    def _missing(self, path: Path) -> None:
        self._add(path, wording.missing(path), self._document.positions.of_key(path))

    def _unknown_key(self, path: Path) -> None:
        name = str(path[-1])
        known = fields.known_keys(ValuesFile, path[:-1])
        if gone := wording.gone(path):
            self._unknown(path, gone)
            self._remove(path)
            return
        near = nearest(name, known)
        elsewhere = wording.elsewhere(name)
        if elsewhere and not (near and same_word(name, near)):
            self._unknown(path, f"did you mean {elsewhere}?")
            self._remove(path)
            return
        self._unknown(path, did_you_mean(name, known))
        siblings = self._get(path[:-1])
        if near and isinstance(siblings, dict) and near not in siblings:
            self._rename(path, near)
        else:
            self._remove(path)

    def _unknown(self, path: Path, next_step: str) -> None:
        around = wording.dotted(path[:-1])
        expected = f"a key of `{around}`" if around else "`kind`, `job` or the chart's"
        problem = Problem(wording.dotted(path), "an unknown key", expected, next_step)
        self._add(path, problem, self._document.positions.of_key(self._original(path)))

    def _broken_rules(self, path: Path, cause: ProblemsError) -> None:
        for rule in cause.problems[: self._document.most]:
            parts = rule.inside or (rule.path.split(".") if rule.path else ())
            inner = (*path, *parts)
            if self._is_handled(inner):
                continue
            at = self._document.positions.of_value(self._original(inner))
            self._add(inner, replace(rule, path=wording.dotted(inner)), at)
        if (
            len(path) > 1
        ):  # the rule of a section or a field; one of the job is the last
            self._remove(path)

    def _correct(self, path: Path, value: Any) -> None:
        """Replace a misspelt key by the likely one, or remove it."""
        info = fields.field_at(ValuesFile, path)
        words = fields.choices(info) if info else []
        near = nearest(value, words) if isinstance(value, str) else None
        if near is not None:
            self._put(path, near)
        elif path == ("kind",):
            self._put(path, "job")
        elif path == ("job",):
            self._put(path, {})
        else:
            self._remove(path)

    def _add(self, path: Path, problem: Problem, at: tuple[int, int]) -> None:
        self._handled.add(path)
        original = self._original(path)
        for override in self._document.overrides:
            # An unknown key on an override's way was made by it.
            made = (
                override.path[: len(original)] == original
                and original not in self._document.positions.keys
            )
            if made or original[: len(override.path)] == override.path:
                self._found.append(
                    ((10**9, 0), replace(problem, place=override.written))
                )
                return
        place = f"{self._document.source}:{at[0]}:{at[1]}"
        self._found.append((at, replace(problem, place=place)))

    def _is_handled(self, path: Path) -> bool:
        """Whether the path, or one that contains it, was already reported."""
        return any(path[: len(known)] == known for known in self._handled)

    def _original(self, path: Path) -> Path:
        for length in range(len(path), 0, -1):
            before = self._renamed.get(path[:length])
            if before is not None:
                return self._original(before[:-1]) + before[-1:] + path[length:]
        return path

    def _get(self, path: Path) -> Any:
        inner: Any = self._tree
        for part in path:
            try:
                inner = inner[part]
            except (KeyError, IndexError, TypeError):
                return None
        return inner

    def _put(self, path: Path, value: Any) -> None:
        around = self._get(path[:-1])
        with contextlib.suppress(IndexError, TypeError):  # what is around is wrong too
            around[path[-1]] = value

    def _remove(self, path: Path) -> None:
        around = self._get(path[:-1])
        if isinstance(around, dict):
            around.pop(str(path[-1]), None)
        elif isinstance(around, list):
            self._remove(path[:-1])  # an item away would move the others' numbers

    def _rename(self, path: Path, name: str) -> None:
        around = self._get(path[:-1])
        around[name] = around.pop(path[-1])
        self._renamed[(*path[:-1], name)] = path
