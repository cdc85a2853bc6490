# The same digits in the short form: one function that returns a compiled Keras model.
# Loss, metrics and optimizer come from `compile`; Input is named after the feature of
# the records it takes, and the feature `label` is the label.
import keras


def model(units=128, learning_rate=0.001):
    network = keras.Sequential(
        [
            keras.Input(shape=(64,), name="image"),
            keras.layers.Rescaling(1 / 16),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    network.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return network
