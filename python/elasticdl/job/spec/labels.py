"""Labels, annotations, names of images: texts that Kubernetes takes in one form.

Owns their patterns and the sentences about what does not match. Used by the models of
the specification and of the chart's keys. Must not know which keys have them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from elasticdl.job.spec.problems import Problem, ProblemsError, got

if TYPE_CHECKING:
    from collections.abc import Callable

_WORD = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_KEY_PATTERN = rf"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_WORD}$"
LABEL_VALUE_PATTERN = rf"^({_WORD})?$"
_ALERT_LABEL_PATTERN = "^[a-zA-Z_][a-zA-Z0-9_]*$"
# A registry, names between slashes, a tag, a digest; or nothing.
IMAGE_PATTERN = (
    r"^(([A-Za-z0-9][-A-Za-z0-9.]*|\[[0-9a-fA-F:]+\])(:[0-9]+)?/)?"
    r"[a-z0-9]+([-._/]+[a-z0-9]+)*(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?"
    r"(@sha256:[0-9a-f]{64})?$|^$"
)


def _checked(
    key: str, value: str, *, name: str, form: str
) -> Callable[[dict[str, str]], dict[str, str]]:
    def check(given: dict[str, str]) -> dict[str, str]:
        problems = [
            Problem("", got(one), f"the name of {name}", form)
            for one in given
            if not re.search(key, one)
        ]
        problems += [
            Problem(one, got(text), "a value that a label may have", form)
            for one, text in given.items()
            if not re.search(value, text)
        ]
        if problems:
            raise ProblemsError(*problems)
        return given

    return check


def schema_of(key: str, value: str = "") -> dict[str, Any]:
    """Return the schema of a mapping of texts, by patterns of keys and values."""
    texts = {"type": "string", **({"pattern": value} if value else {})}
    # Helm says of `propertyNames` not where it is.
    return {
        "type": "object",
        "patternProperties": {key: texts},
        "additionalProperties": False,
    }


_FORM = "letters, digits, `-`, `_` and `.`, at most 63, no end but a letter or digit"
Labels = Annotated[
    dict[str, str],
    AfterValidator(
        _checked(LABEL_KEY_PATTERN, LABEL_VALUE_PATTERN, name="a label", form=_FORM)
    ),
    WithJsonSchema(schema_of(LABEL_KEY_PATTERN, LABEL_VALUE_PATTERN)),
]
Annotations = Annotated[
    dict[str, str],
    AfterValidator(_checked(LABEL_KEY_PATTERN, "", name="an annotation", form=_FORM)),
    WithJsonSchema(schema_of(LABEL_KEY_PATTERN)),
]
# Those of alerts and series.
PrometheusLabels = Annotated[
    dict[str, str],
    AfterValidator(
        _checked(
            _ALERT_LABEL_PATTERN,
            "",
            name="a label of Prometheus",
            form="letters, digits and `_`, not a digit first",
        )
    ),
    WithJsonSchema(schema_of(_ALERT_LABEL_PATTERN)),
]
Image = Annotated[str, Field(pattern=IMAGE_PATTERN)]
