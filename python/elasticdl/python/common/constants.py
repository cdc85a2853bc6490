"""Classic names of what `feed` is called for.

Owns nothing: the strings are those of model/feed_call.py. For user modules alone.
"""

from __future__ import annotations


class Mode:
    """The `mode` that `feed(dataset, mode, metadata)` gets; plain strings."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"
