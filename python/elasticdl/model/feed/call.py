"""Calling the user's `feed` and understanding what it returned.

Owns the rules of the feed contract: its arguments, the form of its elements in each
mode, how features reach the model's inputs. Called by `definition` (to build models
whose shapes only the data tells) and by `feeding`. Knows nothing of speed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from elasticdl.data.reader import Metadata
from elasticdl.errors import UserCodeError
from elasticdl.model.measures.targets import Weighted
from elasticdl.model.user_code import ModelCode, did_you_mean

TRAINING = "training"
EVALUATION = "evaluation"
PREDICTION = "prediction"

# Metadata.extra key: dtype of records that are tensors, not one string (a classic
# custom reader that yields a list of values); they travel as TensorProto bytes.
RECORD_DTYPE = "record_dtype"


@dataclass(frozen=True)
class Feed:
    """The user's feed function, called according to its parameters."""

    function: Callable[..., Any]
    code: ModelCode

    @property
    def name(self) -> str:
        """Name for messages."""
        return getattr(self.function, "__name__", "feed")

    def __call__(self, records: Any, mode: str, metadata: Metadata) -> Any:
        """Return the dataset that feed returns for `records`, a dataset of strings.

        Raises UserCodeError when feed raises, returns no dataset, or its elements do
        not have the form that the mode asks for.
        """
        dtype = metadata.extra.get(RECORD_DTYPE)
        if dtype:
            records = records.map(lambda r: tf.io.parse_tensor(r, tf.as_dtype(dtype)))
        with self.code.running(f"{self.name}(dataset, {mode!r}, metadata)"):
            result = self.function(*(records, mode, metadata)[: self._num_arguments()])
        if not isinstance(result, tf.data.Dataset):
            raise UserCodeError(
                f"{self.name} returned {type(result).__name__}, expected a "
                "tf.data.Dataset; return what dataset.map(...) gives"
            )
        check_element(self.name, result.element_spec, mode)
        return result

    def _num_arguments(self) -> int:
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError):
            return 3
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            return 3
        positional = [
            p
            for p in parameters
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        return min(3, len(positional))


def check_element(name: str, spec: Any, mode: str) -> None:
    """Raise UserCodeError when an element of the fed dataset has the wrong form."""
    if mode == PREDICTION:
        return
    if isinstance(spec, tuple) and len(spec) in (2, 3):
        return
    raise UserCodeError(
        f"{name} gives {type(spec).__name__} in mode {mode}, expected a pair "
        "(features, labels), or (features, labels, weights)"
    )


def split_element(element: Any, mode: str) -> tuple[Any, Any]:
    """Return features and targets; targets are None in prediction."""
    if not isinstance(element, tuple) or len(element) not in (2, 3):
        return element, None
    if mode == PREDICTION:
        return element[0], None
    if len(element) == 3 and element[2] is not None:
        return element[0], Weighted(element[1], element[2])
    return element[0], element[1]


def fit_features(model: keras.Model, features: Any) -> Any:
    """Return the features in the structure of `model`'s inputs.

    A functional or Sequential model gets its inputs by name out of a dict that may
    hold more; a subclassed model gets the features as feed gave them. Raises
    UserCodeError when an input is not among the features.
    """
    if not isinstance(features, dict):
        return features
    inputs = functional_inputs(model)
    if inputs is None:
        return features
    if isinstance(inputs, dict):
        wanted = {key: key for key in inputs}
    else:
        wanted = {tensor.name: tensor.name for tensor in keras.tree.flatten(inputs)}
    missing = [name for name in wanted if name not in features]
    if missing:
        if len(wanted) == 1 and len(features) == 1:
            return next(iter(features.values()))
        raise UserCodeError(
            f"the model's input `{missing[0]}` is not among the features "
            f"{sorted(features)} that feed gives; name the Input after the feature"
            + did_you_mean(missing[0], list(features))
        )
    if isinstance(inputs, dict):
        return {name: features[name] for name in wanted}
    if isinstance(inputs, list | tuple):
        return [features[tensor.name] for tensor in inputs]
    return features[inputs.name]


def functional_inputs(model: keras.Model) -> Any | None:
    """Return the model's inputs in their structure; None for a subclassed model."""
    if isinstance(model, keras.Sequential):
        inputs = getattr(model, "inputs", None)
        return inputs[0] if inputs else None
    if not getattr(model, "inputs", None):
        return None
    # The attribute keeps the user's own structure; `inputs` is flat.
    return getattr(model, "_inputs_struct", model.inputs)
