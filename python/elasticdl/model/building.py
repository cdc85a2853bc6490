"""Making the model: user function -> Keras model with all its weights.

Owns seeding, the precision policy, and the example call that gives a subclassed model
its weights. Called by `definition`. Knows nothing of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import keras
import tensorflow as tf
from keras.src.random.seed_generator import global_seed_generator

from elasticdl.data.reader import Metadata
from elasticdl.errors import UserCodeError
from elasticdl.model.feed.call import (
    PREDICTION,
    Feed,
    fit_features,
    functional_inputs,
    split_element,
)
from elasticdl.model.feed.chain import batches_itself
from elasticdl.model.feed.default import csv_columns, default_parser
from elasticdl.model.feed.unparsed import by_name
from elasticdl.model.user_code import ModelCode, check_params, short

FULL_POLICY = "float32"
MIXED_POLICY = "mixed_bfloat16"
_FLOATX = "float32"  # also of inputs and constants
Imported = TypeVar("Imported")
Parsed = TypeVar("Parsed")
_EXAMPLE_RECORDS = 2  # Two show that the first axis is the record.


def with_policy(run: Callable[[], Imported]) -> tuple[Imported, Any]:
    """Return what importing a module returns, and the dtype policy that it sets.

    A module sets one for all its layers at its top, as Keras's guide does.
    """
    keras.config.set_floatx(_FLOATX)  # not those of a module before
    keras.config.set_dtype_policy(FULL_POLICY)
    imported = run()
    refuse_floatx()
    return imported, keras.config.dtype_policy()


def refuse_floatx() -> None:
    """Raise UserCodeError if the module's code has set another type of floats.

    It would be that of inputs and constants, and not that of variables.
    """
    floatx = keras.config.floatx()
    if floatx != _FLOATX:
        keras.config.set_floatx(_FLOATX)
        raise UserCodeError(
            f"the module calls keras.config.set_floatx({floatx!r}), expected "
            f"{_FLOATX!r}, which all variables have: leave the call out "
            "(model.mixedPrecision computes in 16 bits)"
        )


def begin(*, seed: int, policy: Any = FULL_POLICY) -> None:
    """Seed this process: every process builds the same names and values.

    Keras counts layers to name them and draws initial values from one seed; both begin
    anew here. So does the dtype policy, which Keras forgets with its session.
    """
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(seed)
    keras.config.set_dtype_policy(policy)


def call_model_function(
    code: ModelCode,
    function: Callable[..., Any],
    name: str,
    params: Mapping[str, Any],
) -> keras.Model:
    """Return the Keras model that the user's function or class makes.

    Raises UserCodeError when it raises, gets params it does not take, sets another
    type of floats, or returns something else.
    """
    check_params(f"{name}()", function, params)
    with code.running(f"{name}()"):
        model = function(**params)
    refuse_floatx()
    if not isinstance(model, keras.Model):
        got = "None" if model is None else type(model).__name__
        raise UserCodeError(
            f"{name}() in {code.main_file} returned {got}, expected a keras.Model"
            + ("; is a `return` missing?" if model is None else "")
        )
    return model


# By a tensor's identity: what a model's Inputs make of it has their shapes.
Extents = Mapping[int, tuple[int | None, ...]]


def example(
    feed: Feed | None,
    model: keras.Model,
    *,
    mode: str,
    metadata: Metadata,
    sample: Sequence[bytes],
) -> tuple[Any, Any, Extents] | None:
    """Return features and labels of a small batch: of `sample`, else of zeros.

    And the extents of each feature, as far as the feed leaves them open.

    None when neither the feed nor the model's inputs tell the shapes.
    """
    if feed is None and sample:
        parse = default_parser(model, metadata, sample, mode)
        parsed = _of_those_that_parse(
            sample,
            lambda some: parse(tf.constant(some)),
            lambda reason: by_name(reason, csv_columns(metadata)),
        )
        features, labels = split_element(parsed, mode)
        return fit_features(model, features), labels, {}
    if feed is None:
        inputs = functional_inputs(model)
        if inputs is None:
            return None
        features = keras.tree.map_structure(
            lambda t: _zeros(t.shape[1:], tf.as_dtype(t.dtype)), inputs
        )
        return features, None, {}
    if sample:
        element, fed = _of_those_that_parse(
            sample,
            lambda some: _first_fed(feed, some, mode, metadata),
            lambda reason: f"{reason} (fields and columns are counted from 0)",
        )
        if element is not None:
            features, labels = split_element(element, mode)
            extents = _extents(element, fed.element_spec, 1)
            return fit_features(model, features), labels, extents
    records = tf.data.Dataset.from_tensor_slices(tf.constant([b""]))
    fed = feed(records, mode, metadata)
    spec = fed.element_spec
    skip = 1 if feed_batches(fed, records) else 0
    leaves = tf.nest.flatten(spec)
    if not all(
        isinstance(leaf, tf.TensorSpec) and leaf.shape.rank is not None
        for leaf in leaves
    ):
        return None
    element = tf.nest.map_structure(
        lambda leaf: _zeros(leaf.shape[skip:], leaf.dtype), spec
    )
    features, labels = split_element(element, mode)
    return fit_features(model, features), labels, _extents(element, spec, skip)


def _of_those_that_parse(
    sample: Sequence[bytes],
    parse: Callable[[list[bytes]], Parsed],
    told: Callable[[str], str],
) -> Parsed:
    """Return what `parse` makes of a sample, or of those of its records that it takes.

    A bad record fails the job, or is skipped, where it is trained: there its file and
    number are known. Raises UserCodeError where none can be parsed, with the reason as
    `told` says it.
    """
    try:
        return parse(list(sample))
    except (tf.errors.InvalidArgumentError, UserCodeError) as error:
        if not isinstance(_cause(error), tf.errors.InvalidArgumentError):
            raise
        good = [record for record in sample if _parses(record, parse)]
        if good:
            return parse(good)
        if isinstance(error, UserCodeError):
            raise
        raise UserCodeError(
            "no record of the data has what the model's inputs take: "
            f"{told(short(error))}; change the data or the Input, or add a `feed` to "
            "the model module"
        ) from error


def _parses(record: bytes, parse: Callable[[list[bytes]], Any]) -> bool:
    try:
        parse([record])
    except (tf.errors.InvalidArgumentError, UserCodeError):
        return False
    return True


def _cause(error: Exception) -> BaseException | None:
    return error.__cause__ if isinstance(error, UserCodeError) else error


def _first_fed(
    feed: Feed, sample: list[bytes], mode: str, metadata: Metadata
) -> tuple[Any, Any]:
    """Return the first element of what a feed makes of records, and its dataset."""
    records = tf.data.Dataset.from_tensor_slices(tf.constant(sample))
    fed = feed(records, mode, metadata)
    # What a feed batches stays as it is: batches padded to different lengths do not
    # join.
    if not feed_batches(fed, records):
        fed = fed.batch(len(sample))
    with feed.code.running(feed.name):
        return next(iter(fed), None), fed


def _extents(element: Any, spec: Any, skip: int) -> Extents:
    """Return what the feed says of each tensor's extents, without the records.

    A batch has the width that it was padded to; the next one may have another.
    """
    pairs = zip(tf.nest.flatten(element), tf.nest.flatten(spec), strict=True)
    return {
        id(tensor): tuple(of.shape[skip:])
        for tensor, of in pairs
        if isinstance(of, tf.TensorSpec) and of.shape.rank is not None
    }


def feed_batches(fed: Any, records: Any) -> bool:
    """Return whether the feed batches by itself."""
    return bool(batches_itself(fed, records, "feed"))


def _zeros(shape: Any, dtype: tf.DType) -> tf.Tensor:
    extents = [1 if extent is None else int(extent) for extent in shape]
    return tf.zeros([_EXAMPLE_RECORDS, *extents], dtype)


def call(model: keras.Model, features: Any, *, training: bool) -> Any:
    """Return the model's outputs; subclassed models may not know `training`."""
    if takes_training(model):
        return model(features, training=training)
    return model(features)


def takes_training(model: keras.Model) -> bool:
    """Return whether the model's call has a `training` parameter, as Keras asks.

    One with `**kwargs` alone is called without: its layers then hear of no mode. What
    is put in the place of `call` later is called as the one before it.
    """
    return "training" in model.call_signature_parameters


def build_weights(code: ModelCode, model: keras.Model, features: Any, name: str) -> Any:
    """Call the model once so that all weights exist; return its outputs."""
    with code.running(f"calling the model of {name}()"):
        outputs = call(model, features, training=False)
    # Made now, since unseeded `keras.random` would make it while a step is traced.
    # Not earlier: its seed is drawn from the same numbers as those of initial values.
    global_seed_generator()
    return outputs


def mode_of(job_type: str) -> str:
    """Return the mode of the feed that tells the model's shapes."""
    return {"train": "training", "evaluate": "evaluation", "predict": PREDICTION}[
        str(job_type)
    ]
