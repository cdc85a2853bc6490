"""What the specification's fields are called and may hold, in words.

Owns the walk over the models of `job.spec.job` and the plain-language type of each
field. Used for messages about mistakes, for docs/spec.md and by the flags. Must not
know values files.
"""

from __future__ import annotations

import enum
import json
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from elasticdl.job.spec.base import EXACT
from elasticdl.job.spec.job import (
    MAX_NAME_LENGTH,
    NAME_PATTERN,
    PATH_PATTERN,
    QUANTITY_PATTERN,
)
from elasticdl.job.spec.labels import IMAGE_PATTERN

_PATTERNS = {
    NAME_PATTERN: f"lower case letters, digits and dashes, at most {MAX_NAME_LENGTH}, "
    "no dash at the ends",
    PATH_PATTERN: "a path that begins with `/`",
    IMAGE_PATTERN: "an image, as `registry.example/team/worker:1`",
    QUANTITY_PATTERN: "a quantity, as `512Mi` or `4Gi`",
}
_PLAIN = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
}


@dataclass(frozen=True)
class FieldDoc:
    """One field for people: dotted camelCase path, type in words, default, meaning."""

    path: str
    kind: str
    default: str
    description: str


def aliases(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return a model's fields by their camelCase keys."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model class in an annotation; None for plain values."""
    for part in _alternatives(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def field_at(model: type[BaseModel], path: tuple[str | int, ...]) -> FieldInfo | None:
    """Return the field at a path of keys and list indices; None where there is none."""
    info: FieldInfo | None = None
    inner: type[BaseModel] | None = model
    for key in path:
        if isinstance(key, int):
            continue
        if inner is None:
            return None
        info = aliases(inner).get(key)
        if info is None:
            return None
        inner = model_of(info.annotation) or _model_of_items(info.annotation)
    return info


def is_alternative(model: type[BaseModel], path: tuple[str | int, ...]) -> bool:
    """Whether a path ends with the name of one of several types of a field."""
    if len(path) < 2 or field_at(model, path) is not None:
        return False
    info = field_at(model, path[:-1])
    return info is not None and len(_alternatives(info.annotation)) > 1


def known_keys(model: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    """Return the keys that may stand in the mapping at a path."""
    if not path:
        return list(aliases(model))
    info = field_at(model, path)
    if info is None:
        return []
    inner = model_of(info.annotation) or _model_of_items(info.annotation)
    return list(aliases(inner)) if inner else []


def choices(info: FieldInfo) -> list[str]:
    """Return the words that a field may hold; empty where it is no closed set."""
    for part in _alternatives(info.annotation):
        items = get_args(part) if get_origin(part) is list else (part,)
        words = _words(items[0])
        if words:
            return words
    return []


def expected(info: FieldInfo) -> str:
    """Return the accepted values in words: `a whole number, 1 or more`."""
    words = choices(info)
    if words and get_origin(info.annotation) is not list:
        listed = ", ".join(f"`{word}`" for word in words)
        number = _number(info.annotation)
        return f"{number}, or {listed}" if number else f"one of {listed}"
    annotation, metadata = _unwrap(info.annotation, list(info.metadata))
    text = _kind(annotation)
    bounds = _bounds(metadata)
    if bounds in _PATTERNS.values():
        return bounds
    return f"{text}, {bounds}" if bounds else text


def documented(model: type[BaseModel], prefix: str) -> Iterator[FieldDoc]:
    """Yield every leaf field below a model, depth first, in the order of the file."""
    for key, info in aliases(model).items():
        inner = model_of(info.annotation)
        if inner is not None:
            yield from documented(inner, f"{prefix}.{key}")
            continue
        yield FieldDoc(
            f"{prefix}.{key}",
            expected(info),
            default_text(info),
            info.description or "",
        )
        items = _model_of_items(info.annotation)
        if items is not None:
            yield from documented(items, f"{prefix}.{key}[]")


def default_text(info: FieldInfo) -> str:
    """Return a default as written in a file; `required`, `empty`."""
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is None or value == "":
        return "empty"
    if isinstance(value, BaseModel):
        return "that of each key"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value_text, value)) + "]"
    return _value_text(value)


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, BaseModel):
        value = value.model_dump(by_alias=True, mode="json", exclude_unset=True)
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _kind(annotation: Any) -> str:
    for one in _alternatives(annotation):
        part, _ = _unwrap(one, [])
        origin = get_origin(part) or part
        if origin in _PLAIN:
            return _PLAIN[origin]
        if origin is dict:
            inner = _kind(get_args(part)[1])
            return f"a mapping of names to {inner}"
        if origin is list:
            item, _ = _unwrap(get_args(part)[0], [])
            words = _words(item)
            if words:
                return "a list of " + " and ".join(f"`{word}`" for word in words)
            mappings = model_of(item) or get_origin(item) is dict
            return "a list of mappings" if mappings else "a list of texts"
        if model_of(part):
            return "a mapping"
    return "anything"


def _number(annotation: Any) -> str:
    """Return the numbers that may stand in place of words, in words; or nothing."""
    for one in _alternatives(annotation):
        part, metadata = _unwrap(one, [])
        if part in (int, float):
            return ", ".join(filter(None, [_PLAIN[part], _bounds(metadata)]))
    return ""


def _bounds(metadata: list[Any]) -> str:
    parts = []
    for item in metadata:
        if EXACT in (getattr(item, "le", None), -getattr(item, "ge", 0)):
            continue  # of all numbers, and told to who comes near
        if isinstance(item, annotated_types.Ge):
            parts.append(f"{item.ge} or more")
        elif isinstance(item, annotated_types.Gt):
            parts.append(f"more than {item.gt}")
        elif isinstance(item, annotated_types.Le):
            parts.append(f"{item.le} or less")
        elif getattr(item, "pattern", None) in _PATTERNS:
            return _PATTERNS[item.pattern]
    return ", ".join(parts)


def _words(part: Any) -> list[str]:
    if get_origin(part) is Literal:
        return [str(word) for word in get_args(part)]
    if isinstance(part, type) and issubclass(part, enum.Enum):
        return [str(member.value) for member in part]
    return []


def _alternatives(annotation: Any) -> list[Any]:
    annotation, _ = _unwrap(annotation, [])
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for part in get_args(annotation) if part is not type(None)]
    return [annotation]


def _unwrap(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any]]:
    while get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        for item in more:
            metadata.extend(item.metadata if isinstance(item, FieldInfo) else [item])
    return annotation, metadata


def _model_of_items(annotation: Any) -> type[BaseModel] | None:
    for part in _alternatives(annotation):
        if get_origin(part) is list:
            return model_of(get_args(part)[0])
    return None


def as_read(model: type[BaseModel], tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree as the chart reads it: without null fields, `64.0` as 64.

    A field of null means its default; a section whose lines are all comments is one.
    Mappings that the user names keys of (`env`, `params`) are kept as they are.
    """
    fields = aliases(model)
    clean: dict[str, Any] = {}
    for key, value in tree.items():
        info = fields.get(key)
        if value is None and info is not None and not _keeps_null(model):
            continue
        inner = model_of(info.annotation) if info is not None else None
        if inner is not None and isinstance(value, Mapping):
            clean[key] = as_read(inner, value)
        elif info is not None and isinstance(value, float):
            clean[key] = _whole(info, value)
        else:
            clean[key] = value
    return clean


def _whole(info: FieldInfo, value: float) -> float:
    """Return 1e6 as the whole number that it is, where a field takes no others."""
    kinds = [_unwrap(one, [])[0] for one in _alternatives(info.annotation)]
    takes = int in kinds and float not in kinds and abs(value) <= EXACT
    return int(value) if takes and value.is_integer() else value


def _keeps_null(model: type[BaseModel]) -> bool:
    return bool(getattr(model, "null_is_a_value", False))


def section_descriptions(model: type[BaseModel], path: str) -> dict[str, str]:
    """Return the description of each section of a model, by dotted path."""
    found = {path: (model.__doc__ or "").strip().partition("\n")[0]}
    for key, info in aliases(model).items():
        inner = model_of(info.annotation)
        items = _model_of_items(info.annotation)
        if inner is not None:
            found.update(section_descriptions(inner, f"{path}.{key}"))
        elif items is not None:
            found.update(section_descriptions(items, f"{path}.{key}[]"))
    return found
