"""An embedding layer that combines several ids of a record into one vector.

Owns the layer `Embedding` with the classic arguments. Imported by user modules. Knows
nothing of PS: its gradient is row-wise, which is all they need.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

_COMBINERS = ("sum", "mean", "sqrtn")


@keras.saving.register_keras_serializable(package="elasticdl")
class Embedding(keras.layers.Layer):
    """Looks ids up in a table [input_dim, output_dim].

    Ids of shape [..., n] give [..., n, output_dim], or [..., output_dim] with a
    combiner. A tf.SparseTensor of ids needs a combiner.
    """

    def __init__(
        self,
        output_dim: int,
        input_dim: int | None = None,
        embeddings_initializer: Any = "uniform",
        mask_zero: bool = False,
        input_length: int | None = None,
        combiner: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the size of the table; `kwargs` are keras.layers.Layer's.

        Raises ValueError without `input_dim`: tables that grow with the ids they meet
        are not there yet.
        """
        if input_dim is None:
            raise ValueError(
                "Embedding needs input_dim, the number of ids; tables without a size "
                "are not supported yet (hash the ids: keras.layers.Hashing)"
            )
        if combiner is not None and combiner not in _COMBINERS:
            raise ValueError(f"combiner is {combiner!r}, expected one of {_COMBINERS}")
        if mask_zero and combiner is not None:
            raise ValueError(
                "mask_zero has no meaning with a combiner; use one of them"
            )
        del input_length  # Keras knows the length from the ids
        super().__init__(**kwargs)
        self.output_dim = output_dim
        self.input_dim = input_dim
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero
        self.combiner = combiner

    def build(self, input_shape: Any = None) -> None:
        """Create the table."""
        del input_shape
        self.embeddings = self.add_weight(
            shape=(self.input_dim, self.output_dim),
            initializer=self.embeddings_initializer,
            name="embeddings",
        )
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Return the vectors of the ids."""
        if isinstance(inputs, tf.RaggedTensor) and self.combiner is not None:
            if inputs.shape.rank != 2:
                raise ValueError(
                    f"got ragged ids of {inputs.shape.rank} axes, expected records and "
                    "ids: merge the inner ones (ids.merge_dims(1, -1))"
                )
            inputs = inputs.to_sparse()
        sparse = isinstance(inputs, tf.SparseTensor)
        if sparse and self.combiner is None:
            raise ValueError("a SparseTensor of ids needs a combiner")
        table = tf.convert_to_tensor(self.embeddings)
        if sparse:
            found = tf.nn.embedding_lookup_sparse(
                table, inputs, None, combiner=self.combiner
            )
            # It ends with the last record that has an id; the others are zeros too.
            without = tf.shape(inputs)[0] - tf.shape(found)[0]
            return tf.pad(found, [[0, without], [0, 0]])
        rows = tf.gather(table, tf.cast(inputs, tf.int64))
        if self.combiner is None:
            return rows
        total = tf.reduce_sum(rows, axis=-2)
        count = tf.cast(tf.shape(rows)[-2], rows.dtype)
        if self.combiner == "mean":
            return total / count
        return total / tf.sqrt(count) if self.combiner == "sqrtn" else total

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        """Return the ids' shape with the vectors' size at its end."""
        kept = input_shape if self.combiner is None else input_shape[:-1]
        return (*kept, self.output_dim)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Mask the ids that are 0, with mask_zero."""
        del previous_mask
        return tf.not_equal(inputs, 0) if self.mask_zero else None

    def get_config(self) -> dict[str, Any]:
        """Return the configuration that `from_config` takes."""
        return {
            **super().get_config(),
            "output_dim": self.output_dim,
            "input_dim": self.input_dim,
            "embeddings_initializer": keras.initializers.serialize(
                self.embeddings_initializer
            ),
            "mask_zero": self.mask_zero,
            "combiner": self.combiner,
        }
