"""An ordinary Keras program: a small network on images, by `model.fit`.

    toolkit run -- python keras_images.py

It knows nothing of leases. Without a GPU it computes on this machine's processor.
"""

from __future__ import annotations

import argparse
import hashlib

import keras
import numpy as np
import tensorflow as tf

SIDE, CLASSES, BATCH = 12, 10, 64


def network() -> keras.Model:
    """Images come as bytes, a quarter of the size of floating point, and are scaled where the network is."""
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((SIDE, SIDE, 3), dtype="uint8"),
            layers.Rescaling(1 / 255),
            layers.Conv2D(8, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.1),
            layers.Dense(CLASSES),
        ]
    )


def main() -> None:
    """Trains, and prints each epoch's loss with all of its bits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    keras.utils.set_random_seed(1)
    data = np.random.RandomState(0)
    x = data.randint(0, 256, (options.images, SIDE, SIDE, 3), dtype=np.uint8)
    y = data.randint(0, CLASSES, options.images)
    print("gpus", len(tf.config.list_physical_devices("GPU")), flush=True)
    model = network()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # Compiled alike with and without a GPU; "auto" takes XLA with one alone.
    model.compile("adam", loss, metrics=["accuracy"], jit_compile=False)
    told = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: print("loss", epoch, float(logs["loss"]).hex(), flush=True)
    )
    model.fit(x, y, epochs=options.epochs, batch_size=BATCH, verbose=0, callbacks=[told])
    print("weights", hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest())


if __name__ == "__main__":
    main()
