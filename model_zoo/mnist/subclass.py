# MNIST (or Fashion-MNIST) in the classic form with a subclassed model, named by its
# class: model.definition is `mnist.subclass.CustomModel`. Records as functional_api.py.
import tensorflow as tf
from elasticdl.python.common.constants import Mode


class CustomModel(tf.keras.Model):
    def __init__(self, channel_last=True):
        super().__init__(name="mnist_model")
        self._reshape = tf.keras.layers.Reshape(
            (28, 28, 1) if channel_last else (1, 28, 28)
        )
        self._conv1 = tf.keras.layers.Conv2D(32, kernel_size=(3, 3), activation="relu")
        self._conv2 = tf.keras.layers.Conv2D(64, kernel_size=(3, 3), activation="relu")
        self._batch_norm = tf.keras.layers.BatchNormalization()
        self._max_pool = tf.keras.layers.MaxPooling2D(pool_size=(2, 2))
        self._dropout = tf.keras.layers.Dropout(0.25)
        self._flatten = tf.keras.layers.Flatten()
        self._dense = tf.keras.layers.Dense(10)

    def call(self, inputs, training=False):
        x = self._reshape(inputs["image"])
        x = self._conv1(x)
        x = self._conv2(x)
        x = self._batch_norm(x, training=training)
        x = self._max_pool(x)
        x = self._dropout(x, training=training)
        x = self._flatten(x)
        return self._dense(x)


def loss(labels, predictions):
    labels = tf.reshape(labels, [-1])
    return tf.reduce_mean(
        input_tensor=tf.nn.sparse_softmax_cross_entropy_with_logits(
            logits=predictions, labels=labels
        )
    )


def optimizer(lr=0.01):
    return tf.keras.optimizers.SGD(lr, momentum=0.9)


def feed(dataset, mode, _):
    def _parse_data(record):
        feature_description = {"image": tf.io.FixedLenFeature([28, 28], tf.float32)}
        if mode != Mode.PREDICTION:
            feature_description["label"] = tf.io.FixedLenFeature([1], tf.int64)
        r = tf.io.parse_single_example(record, feature_description)
        features = {"image": r["image"] / 255.0}
        if mode == Mode.PREDICTION:
            return features
        return features, tf.cast(r["label"], tf.int32)

    dataset = dataset.map(_parse_data)
    if mode == Mode.TRAINING:
        dataset = dataset.shuffle(buffer_size=1024)
    return dataset


def eval_metrics_fn():
    return {"accuracy": tf.keras.metrics.SparseCategoricalAccuracy()}
