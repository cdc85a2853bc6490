"""Classic names: what `feed` is called for, and kinds of readers.

Owns nothing: the strings are those of model/feed/call.py. For user modules alone.
"""

from __future__ import annotations


class Mode:
    """The `mode` that `feed(dataset, mode, metadata)` gets; plain strings."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"


class ReaderType:
    """Kinds of readers that `create_data_reader` of the classic package makes."""

    CSV_READER = "CSV"
    RECORDIO_READER = "RecordIO"
