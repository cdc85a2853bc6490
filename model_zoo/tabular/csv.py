# The same network out of CSV files, in classic form: `feed` gets one line per record,
# and `metadata.column_names` from the header; one of them is `label`.
import keras
import tensorflow as tf


def custom_model(columns=30, classes=2):
    return keras.Sequential(
        [
            keras.Input(shape=(columns,)),
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(classes),
        ]
    )


def loss(labels, predictions):
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels, predictions)
    )


def optimizer():
    return keras.optimizers.Adam(0.003)


def feed(dataset, mode, metadata):
    names = list(metadata.column_names)
    defaults = [tf.constant([], tf.float32)] * len(names)

    def parse(line):
        values = dict(zip(names, tf.io.decode_csv(line, defaults)))
        label = values.pop("label", None)
        features = tf.stack(list(values.values()))
        if mode == "prediction":
            return features
        return features, tf.cast(label, tf.int32)

    dataset = dataset.map(parse)
    return dataset.shuffle(1024) if mode == "training" else dataset


def eval_metrics_fn():
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
