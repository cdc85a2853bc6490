"""Reading a trace: a file, or the name of one that ships with the package.

Owns the sentences about its mistakes. Called by the verb `simulate`. Must not run it.
"""

from __future__ import annotations

import io
import json
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from elasticdl.errors import SpecError
from elasticdl.job.spec.problems import (
    Problem,
    ProblemsError,
    did_you_mean,
    got,
    spec_error,
)
from elasticdl.job.values import fields
from elasticdl.job.values.positions import Positions, find_positions, syntax_problem
from elasticdl.simulator.trace import Trace

_ENDING = ".yaml"


def shipped() -> list[str]:
    """Return the names of the traces that come with the package."""
    folder = resources.files(__package__).joinpath("traces")
    files = (entry.name for entry in folder.iterdir())
    return sorted(name[: -len(_ENDING)] for name in files if name.endswith(_ENDING))


def load_trace(name: str) -> Trace:
    """Read a trace by the path of its file, or by the name of a shipped one.

    Raises SpecError that lists all mistakes.
    """
    if name in shipped():
        file = resources.files(__package__).joinpath("traces", name + _ENDING)
        return parse_trace(file.read_text(encoding="utf-8"), source=name)
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "no UTF-8 text"
        hint = did_you_mean(name, shipped())
        raise SpecError(
            f"{name}: got no file that can be read ({reason}), expected a trace, or "
            f"the name of a shipped one; {hint}"
        ) from error
    return parse_trace(text, source=name)


def parse_trace(text: str, *, source: str) -> Trace:
    """Return the trace of a text; `source` names it. Raises SpecError."""
    try:
        tree = YAML(typ="safe").load(text)
    except YAMLError as error:
        raise spec_error([syntax_problem(error, source)]) from error
    except (RecursionError, ValueError) as error:
        raise _unreadable(error, source) from error
    if not isinstance(tree, dict):
        wanted = "a mapping with `nodes` and `jobs`"
        raise spec_error([Problem("", got(tree), wanted, "", source)])
    if "name" not in tree:
        tree = {"name": Path(source).stem.lower().replace("_", "-"), **tree}
    try:
        document = json.dumps(tree, default=str)
    except (RecursionError, TypeError, ValueError) as error:
        raise _unreadable(error, source) from error
    try:
        return Trace.model_validate_json(
            document, strict=True, by_alias=True, by_name=False
        )
    except ValidationError as error:
        positions = find_positions(text)
        raise spec_error(_problems(error, source, positions)) from None


def _unreadable(error: Exception, source: str) -> SpecError:
    """Return the refusal of YAML that no trace is made of."""
    came = f"text that cannot be read ({error})"
    return spec_error([Problem("", came, "a trace", "correct it", source)])


def _problems(
    error: ValidationError, source: str, positions: Positions
) -> list[Problem]:
    found = []
    for item in error.errors(include_url=False):
        path = tuple(part for part in item["loc"] if part != "[key]")
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, ProblemsError):
            for rule in cause.problems:
                inner = (*path, *_parts(rule.path))
                found.append(_placed(inner, rule, source, positions))
            continue
        found.append(_placed(path, _problem(path, dict(item)), source, positions))
    return found


def _parts(path: str) -> tuple[str | int, ...]:
    parts = path.split(".") if path else []
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def _problem(path: tuple[str | int, ...], item: dict[str, Any]) -> Problem:
    if item["type"] == "extra_forbidden":
        known = fields.known_keys(Trace, path[:-1])
        return Problem(
            "", "an unknown key", "a key of a trace", did_you_mean(str(path[-1]), known)
        )
    info = fields.field_at(Trace, path)
    wanted = fields.expected(info) if info else str(item["msg"]).lower()
    if item["type"] == "missing":
        return Problem("", "nothing", wanted, f"add `{path[-1]}`")
    return Problem("", got(item["input"]), wanted, "correct it")


def _placed(
    path: tuple[str | int, ...], problem: Problem, source: str, positions: Positions
) -> Problem:
    line, column = positions.of_value(path)
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return Problem(
        text.removeprefix("."),
        problem.got,
        problem.expected,
        problem.next_step,
        f"{source}:{line}:{column}",
    )


def dump_trace(trace: Trace) -> str:
    """Return a trace as a file; what holds its default is left out."""
    tree = trace.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, exclude={"priorities"}
    )
    out = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = None
    yaml.width = 100
    yaml.dump(tree, out)
    return out.getvalue()
