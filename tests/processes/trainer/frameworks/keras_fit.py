"""A Keras training as people write it: `fit` with `ModelCheckpoint`. It knows nothing of us."""

import argparse
import time

import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--output", required=True)
parser.add_argument("--resume")
parser.add_argument("--initial-epoch", type=int, default=0)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--epoch-seconds", type=float, default=0.0)
args = parser.parse_args()

keras.utils.set_random_seed(7)
x = np.random.default_rng(1).normal(size=(256, 8)).astype("float32")
y = (x.sum(axis=1) > 0).astype("float32")

if args.resume:
    model = keras.models.load_model(args.resume)
else:
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1, "sigmoid")]
    )
    model.compile(optimizer="adam", loss="binary_crossentropy")
print("begins at", args.initial_epoch, flush=True)
model.fit(
    x,
    y,
    epochs=args.epochs,
    initial_epoch=args.initial_epoch,
    shuffle=False,  # in the same order in every attempt, so that the weights can be compared
    verbose=0,
    callbacks=[
        keras.callbacks.ModelCheckpoint(args.output + "/model_{epoch:03d}.keras"),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: time.sleep(args.epoch_seconds)),
    ],
)
np.savez(args.output + "/final.npz", *model.get_weights(), *[v.numpy() for v in model.optimizer.variables])
