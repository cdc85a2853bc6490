"""The models that TO TRAIN knows by name, their synonyms and arguments.

Owns names, families and what `model.*` each one takes. Called by `sql.attributes` and
`sql.planning`. How a family looks in Keras is `sql.generate`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from elasticdl.job.spec.problems import did_you_mean
from elasticdl.sql.plan import Head

OWN = "own"
_DEFINITION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){1,}")
_ACTIVATIONS = (
    "relu", "gelu", "elu", "selu", "silu", "swish", "tanh", "sigmoid", "softplus",
    "leaky_relu", "linear",
)  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """An argument of a model: `check` is whether a value will do."""

    name: str
    default: Any
    expected: str
    check: Callable[[Any], bool]


@dataclass(frozen=True)
class ModelKind:
    """A model of a name; `classifies` is None where the label decides."""

    name: str
    family: str
    classifies: bool | None
    definition: str = ""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The arguments that it takes."""
        return _OF_FAMILY.get(self.family, ())


def is_whole(value: Any, least: int = 1) -> bool:
    """Whether a value is a whole number, `least` or more; True is none.

    Nor is what a tensor has no number for.
    """
    plain = isinstance(value, int) and not isinstance(value, bool)
    return plain and least <= value < 2**31


def is_number(value: Any) -> bool:
    """Whether a value is a number; True is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _units(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_whole, value))


HIDDEN = Parameter(
    "hidden_units", (128, 64), "a list of whole numbers, as [128, 64]", _units
)
_DROPOUT = Parameter(
    "dropout", 0.0, "a number from 0 to below 1", lambda v: is_number(v) and 0 <= v < 1
)
_ACTIVATION = Parameter(
    "activation", "relu", f"one of {', '.join(_ACTIVATIONS)}",
    lambda v: v in _ACTIVATIONS,
)  # fmt: skip
_DIM = Parameter("embedding_dim", 8, "a whole number, 1 or more", is_whole)
_CROSSES = Parameter("cross_layers", 3, "a whole number, 1 or more", is_whole)
_DEEP = (HIDDEN, _DROPOUT, _ACTIVATION)
_OF_FAMILY = {
    "dnn": _DEEP,
    "linear": (),
    "wide_and_deep": _DEEP,
    "deepfm": (*_DEEP, _DIM),
    "dcn": (*_DEEP, _CROSSES),
}
_BASES = {
    "DNN": "dnn",
    "Linear": "linear",
    "WideAndDeep": "wide_and_deep",
    "DeepFM": "deepfm",
    "DCN": "dcn",
}
MODELS = {
    f"{base}{end}": ModelKind(f"{base}{end}", family, end == "Classifier")
    for base, family in _BASES.items()
    for end in ("Classifier", "Regressor")
}
SYNONYMS = {
    "DNNLinearCombinedClassifier": "WideAndDeepClassifier",
    "DNNLinearCombinedRegressor": "WideAndDeepRegressor",
    "ElasticDLKerasClassifier": "DNNClassifier",
    "ElasticDLEstimator": "DNNClassifier",
}
# What a FOR group may be called where a model has more than one part.
GROUPS = {
    "wide_and_deep": {
        "linear_feature_columns": "wide",
        "dnn_feature_columns": "deep",
        "linear": "wide",
        "wide": "wide",
        "dnn": "deep",
        "deep": "deep",
    },
}


def find_model(name: str) -> ModelKind | str:
    """Return the model of a name, or what is wrong with the name."""
    known = {one.lower(): one for one in (*MODELS, *SYNONYMS)}
    found = known.get(name.lower())
    if found is not None:
        return MODELS[SYNONYMS.get(found, found)]
    if _DEFINITION.fullmatch(name):
        return ModelKind(name, OWN, None, definition=name)
    if "/" in name or ":" in name:
        return (
            f"`{name}` is a model in an image of SQLFlow; expected a model of "
            "ElasticDL or `folder.file.function` of your own"
        )
    return f"there is no model `{name}`; {did_you_mean(name, known.values())}"


def default_model(head: Head) -> ModelKind:
    """Return the model of `LABEL x INTO y`, where none was named."""
    return MODELS["DNNRegressor" if head is Head.NUMBER else "DNNClassifier"]
