"""What to write in place of classic names that Keras 3 cannot serve.

Owns the table. Called where an error of user code becomes its one-line message. What
can be served is in the package `elasticdl.python`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import ModuleType

_COLUMNS = (
    "Keras 3 has no feature columns; write keras.Input and keras.layers (Embedding, "
    "StringLookup, Hashing, CategoryEncoding, Discretization), or keras.utils."
    "FeatureSpace, in the model"
)
_ESTIMATORS = (
    "TensorFlow has no estimators any more; write the model as a keras.Model, its "
    "input_fn as `feed(dataset, mode, metadata)`"
)
_INSIDE = (
    "it was an inner part of the classic system; a model module needs only "
    "`elasticdl.python.common`, `.data.reader`, `.elasticdl` and `.worker`"
)
_TABLE = (
    "tables of MaxCompute are not read; export them to Parquet or CSV, or write "
    "custom_data_reader over AbstractDataReader"
)
_NO_EXPERIMENTS = (
    "Keras 3 has no keras.experimental; write LinearModel, WideDeepModel and the like "
    "with keras.layers"
)
_PREPROCESSING = (
    "its layers are in Keras 3: Discretization, Hashing, StringLookup and "
    "IntegerLookup, Normalization, CategoryEncoding of keras.layers"
)
_OWN_LOOP = (
    "training loops of the user's own are not run here; give the module "
    "`custom_model`, `loss`, `optimizer` and `feed`"
)
# Longest first decides: module, or module.name.
_MODULES: Mapping[str, str] = {
    "elasticdl.python": _INSIDE,
    "elasticdl.python.elasticdl.feature_column": _COLUMNS,
    "elasticdl.python.elasticdl.embedding_delegate": _COLUMNS,
    "elasticdl.python.elasticdl.callbacks.saved_model_exporter": (
        "set export.dir of the job instead, which writes the model when it is trained"
    ),
    "elasticdl.python.elasticdl.callbacks.SavedModelExporter": (
        "set export.dir of the job instead, which writes the model when it is trained"
    ),
    "elasticdl.proto": _INSIDE,
    "elasticdl_pb2": _INSIDE,
    "elasticdl.python.elasticdl.callbacks.learning_rate_scheduler": (
        "write `from elasticdl.python.elasticdl.callbacks import LearningRateScheduler`"
    ),
    "elasticdl.python.elasticdl.callbacks.max_steps_stopping": (
        "write `from elasticdl.python.elasticdl.callbacks import MaxStepsStopping`"
    ),
    "elasticdl.python.data.reader.odps_reader": _TABLE,
    "elasticdl.python.data.odps_io": _TABLE,
    "elasticdl.python.data.recordio_reader": (
        "write `from elasticdl.python.data.reader.recordio_reader import "
        "RecordIODataReader`"
    ),
    "elasticdl.python.data.data_reader": (
        "write `from elasticdl.python.data.reader.data_reader import "
        "AbstractDataReader`"
    ),
    "elasticdl.python.common.data_reader": (
        "write `from elasticdl.python.data.reader.data_reader import "
        "AbstractDataReader`"
    ),
    "elasticdl.python.common.log_util": (
        "write `from elasticdl.python.common.log_utils import default_logger`"
    ),
    "elasticdl.python.common.lr_scheduler": (
        "write `from elasticdl.python.elasticdl.callbacks import LearningRateScheduler`"
    ),
    "elasticdl.python.data.recordio_gen": (
        "`elasticdl data make` and `elasticdl data convert` write RecordIO files"
    ),
    "elasticdl.python.data.codec": (
        "write records as tf.train.Example, which the default feed parses"
    ),
    "elasticdl.python.allreduce": _OWN_LOOP,
    "elasticdl_preprocessing": (
        f"{_PREPROCESSING}; "
        "`elasticdl.python.elasticdl.layers.embedding.Embedding` takes sparse ids"
    ),
    "elasticdl_preprocessing.feature_column": _COLUMNS,
    "elasticai_api": _OWN_LOOP,
    "elasticdl_client": "the command line `elasticdl` submits jobs",
    "tensorflow_estimator": _ESTIMATORS,
    "tensorflow.estimator": _ESTIMATORS,
    "tensorflow.feature_column": _COLUMNS,
    "tensorflow.python.keras": (
        "Keras is a package of its own since Keras 3; write `import keras`"
    ),
    "tensorflow.python.feature_column": _COLUMNS,
    "keras.layers.DenseFeatures": _COLUMNS,
    "keras.layers.SequenceFeatures": _COLUMNS,
    "keras.layers.experimental": _PREPROCESSING,
    "keras.experimental": _NO_EXPERIMENTS,
    "recordio": (
        "RecordIO files are read where data.training names them, or by "
        "RecordIODataReader of elasticdl.python.data.reader.recordio_reader"
    ),
}
# Attributes of TensorFlow and Keras that are gone.
_ATTRIBUTES: Mapping[str, str] = {
    "estimator": _ESTIMATORS,
    "feature_column": _COLUMNS,
    "DenseFeatures": _COLUMNS,
    "SequenceFeatures": _COLUMNS,
    "experimental": _NO_EXPERIMENTS,
}
# What TensorFlow calls Keras's modules, and those have inside.
_KERAS = re.compile(r"(tensorflow\.keras|keras\._tf_keras\.keras)(?=\.|$)")
_NO_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


def advice(error: BaseException) -> str | None:
    """Return a sentence for an error that a classic name causes, else None."""
    if isinstance(error, ImportError):
        match = _NO_NAME.search(str(error))
        name = f"{match[2]}.{match[1]}" if match else (error.name or "")
        return _of_module(name)
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        owner = error.obj.__name__
        if owner.split(".")[0] not in {"tensorflow", "keras"}:
            return None
        name = f"{owner}.{error.name}"
        said = _ATTRIBUTES.get(str(error.name))
        return _of_module(name) or (said and f"`{name}` is not there: {said}")
    return None


def _of_module(name: str) -> str | None:
    parts = _KERAS.sub("keras", name).split(".")
    for end in range(len(parts), 0, -1):
        said = _MODULES.get(".".join(parts[:end]))
        if said:
            return f"`{name}` is not there: {said}"
    return None
