# A small network for rows of numbers (breast_cancer, wine), in short form. Records are
# tf.train.Examples with `features` (floats) and `label`; the number of columns and of
# classes are model.params, as {columns: 30, classes: 2}.
import keras


def model(columns=30, classes=2, learning_rate=0.003):
    inputs = keras.Input(shape=(columns,), name="features")
    # Columns differ in scale by thousands: bring them together before the first layer.
    x = keras.ops.log1p(keras.ops.relu(inputs))
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Dense(32, activation="relu")(x)
    x = keras.layers.Dense(16, activation="relu")(x)
    outputs = keras.layers.Dense(classes, activation="softmax")(x)
    network = keras.Model(inputs, outputs)
    network.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return network


def callbacks():
    return [keras.callbacks.EarlyStopping("val_loss", patience=10, min_delta=0.001)]
