"""The sentences about mistakes in a values file: got, expected, next step.

Owns the translation of pydantic's error types into plain words. Called by
`job.values.checking`. Must not know files or positions.
"""

from __future__ import annotations

import functools
from typing import Any

from elasticdl.job.spec.base import EXACT
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.spec.problems import Problem, got, nearest, same_word
from elasticdl.job.values import fields
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.positions import Path

_BY_ERROR = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "literal_error": "another word",
}
_TRUE_OR_FALSE = {
    "yes": "true", "on": "true", "true": "true", "y": "true",
    "no": "false", "off": "false", "false": "false", "n": "false",
}  # fmt: skip


def dotted(path: Path) -> str:
    """Return `job.volumes[0].mountPath`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def missing(path: Path) -> Problem:
    """Return the problem of a missing required field."""
    if path == ("kind",):
        next_step = "add the line `kind: job` at the top"
        return Problem("kind", "nothing", "`job`", next_step)
    info = fields.field_at(ValuesFile, path)
    expected, next_step = "a value", f"add `{path[-1]}`"
    if info is not None:
        expected = fields.expected(info)
        meaning = (info.description or "").rstrip(".")
        next_step += f": {meaning[:1].lower()}{meaning[1:]}"
    return Problem(dotted(path), "nothing", expected, next_step)


def wrong_value(path: Path, item: dict[str, Any]) -> Problem:
    """Return the problem of a value of the wrong type or out of bounds."""
    value = item["input"]
    if path == ("kind",):
        next_step = (
            "a platform's values are for `helm install`, not for this command"
            if value == "platform"
            else "write `kind: job`"
        )
        return Problem("kind", got(value), "`job`", next_step)
    info = fields.field_at(ValuesFile, path)
    if info is not None and isinstance(path[-1], int) and fields.choices(info):
        words = ", ".join(f"`{word}`" for word in fields.choices(info))
        next_step = _another_value(value, info)
        return Problem(dotted(path), got(value), f"one of {words}", next_step)
    if info is None or isinstance(path[-1], int):
        expected = _BY_ERROR.get(item["type"], str(item["msg"]).lower())
        next_step = _retyped(value, item["type"]) or "correct it, or take it out"
        return Problem(dotted(path), got(value), expected, next_step)
    expected = fields.expected(info)
    if isinstance(value, int) and abs(value) > EXACT:
        expected += f", at most {EXACT}, up to which JSON keeps each one"
    return Problem(
        dotted(path),
        got(value),
        expected,
        _retyped(value, item["type"]) or _another_value(value, info),
    )


_GONE: dict[tuple[str, ...], str] = {
    ("job", "populateEnv"): "take it out: `job.env` reaches all roles, as "
    "`pods.common.env` and `pods.common.envFrom` do",
}


def gone(path: Path) -> str | None:
    """Return the advice for a key of older versions, or None."""
    return _GONE.get(tuple(map(str, path)))


def elsewhere(name: str) -> str | None:
    """Return the section in which a misplaced key belongs, or None."""
    places = [
        f"`{path}`" for path in _all_paths() if same_word(path.rpartition(".")[2], name)
    ]
    return " or ".join(places) if 0 < len(places) <= 3 else None


@functools.cache
def _all_paths() -> tuple[str, ...]:
    return tuple(doc.path for doc in fields.documented(JobSpec, "job"))


def _retyped(value: Any, error: str) -> str:
    """Return the advice for a value with too many or too few quotes."""
    if error == "string_type" and isinstance(value, int | float):
        return f'put it in quotes: "{got(value)}"'
    if error == "bool_type" and str(value).lower() in _TRUE_OR_FALSE:
        return f"write {_TRUE_OR_FALSE[str(value).lower()]}, without quotes"
    if error in ("int_type", "float_type") and isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return ""
        return f"write {value}, without quotes"
    if error == "list_type" and isinstance(value, str):
        return f"write a list: [{value}]"
    return ""


def _another_value(value: Any, info: Any) -> str:
    words = fields.choices(info)
    near = nearest(value, words) if words and isinstance(value, str) else None
    if near is not None:
        return f"did you mean `{near}`?"
    if fields.model_of(info.annotation):
        return "write its keys below it, indented"
    default = fields.default_text(info)
    if default == "required":
        return "correct it"
    return f"correct it, or leave it out for the default ({default})"
