"""A small network with dropout, its loss, and one optimiser step: the same code on CPU and GPU."""

from __future__ import annotations

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from trainer.digits.data import CLASSES, PIXELS

WIDTHS = (PIXELS, 256, 128, CLASSES)
DROPOUT = 0.2


class TrainState(NamedTuple):
    """Everything that the next step depends on. `rng` is the raw key data of the dropout stream."""

    params: dict[str, jax.Array]
    optimizer: optax.OptState
    rng: jax.Array


@cache
def optimizer(learning_rate: float, steps: int) -> optax.GradientTransformation:
    """AdamW with a warm-up and a cosine decay. One object per schedule, so one compilation."""
    warm_up = min(20, max(1, steps // 10))
    schedule = optax.warmup_cosine_decay_schedule(0.0, learning_rate, warm_up, max(steps, warm_up + 1))
    return optax.adamw(schedule, weight_decay=1e-3)


def first_state(seed: int, tx: optax.GradientTransformation) -> TrainState:
    """The state before step 1. The weights are drawn by NumPy, which has nothing to compile (2 s saved)."""
    stream = np.random.Generator(np.random.Philox(key=[seed, 0]))
    params = {}
    for number, (wide, narrow) in enumerate(zip(WIDTHS[:-1], WIDTHS[1:], strict=True)):
        weights = stream.standard_normal((wide, narrow), dtype=np.float32) * np.float32((2.0 / wide) ** 0.5)
        params[f"layer{number}.weight"] = jnp.asarray(weights)
        params[f"layer{number}.bias"] = jnp.zeros(narrow)
    return TrainState(params, tx.init(params), jax.random.key_data(jax.random.key(seed)))


def state_shapes(tx: optax.GradientTransformation) -> TrainState:
    """A state of shapes and types alone: what a restored one is compared with. Nothing is compiled for it, and a
    restart need not draw weights that it throws away.
    """
    return jax.eval_shape(lambda: first_state(0, tx))


def logits(params: dict[str, jax.Array], images: jax.Array, key: jax.Array | None = None) -> jax.Array:
    """Images (B, 64) to (B, 10). With a key, hidden units drop out."""
    hidden = images
    last = len(WIDTHS) - 2
    for number in range(last + 1):
        hidden = hidden @ params[f"layer{number}.weight"] + params[f"layer{number}.bias"]
        if number < last:
            hidden = jax.nn.relu(hidden)
            if key is not None:
                kept = jax.random.bernoulli(jax.random.fold_in(key, number), 1 - DROPOUT, hidden.shape)
                hidden = jnp.where(kept, hidden / (1 - DROPOUT), 0.0)
    return hidden


@partial(jax.jit, static_argnames="tx", donate_argnames="state")
def train_step(
    tx: optax.GradientTransformation, state: TrainState, images: jax.Array, labels: jax.Array
) -> tuple[TrainState, jax.Array]:
    """One step on a batch; the new state and the mean cross-entropy before it."""
    following, used = jax.random.split(jax.random.wrap_key_data(state.rng))

    def loss(params: dict[str, jax.Array]) -> jax.Array:
        losses = optax.softmax_cross_entropy_with_integer_labels(logits(params, images, used), labels)
        return losses.mean()

    value, gradients = jax.value_and_grad(loss)(state.params)
    updates, optimizer_state = tx.update(gradients, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    return TrainState(params, optimizer_state, jax.random.key_data(following)), value


@jax.jit
def predict(params: dict[str, jax.Array], images: jax.Array) -> jax.Array:
    """The most likely class of each image, int (N,)."""
    return logits(params, images).argmax(axis=1)


def epoch_order(seed: int, epoch: int, images: int) -> np.ndarray:
    """The order of all images in an epoch, from seed and epoch alone: a cursor is enough to resume it."""
    return np.random.Generator(np.random.Philox(key=[seed, epoch + 1])).permutation(images)
