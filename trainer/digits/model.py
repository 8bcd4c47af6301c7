"""A small network with dropout, its loss, and one optimiser step: the same code on CPU and GPU."""

from __future__ import annotations

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
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
    """AdamW with a warm-up and a cosine decay to zero at the last step. One object per schedule: one compilation."""
    warm_up = min(20, max(1, steps // 10))
    schedule = optax.warmup_cosine_decay_schedule(0.0, learning_rate, warm_up, max(steps, warm_up + 1))
    return optax.adamw(schedule, weight_decay=1e-3)


@partial(jax.jit, static_argnames="tx")
def first_state(seed: int, tx: optax.GradientTransformation) -> TrainState:
    weights_key, dropout_key = jax.random.split(jax.random.key(seed))
    params = {}
    for number, (wide, narrow) in enumerate(zip(WIDTHS[:-1], WIDTHS[1:], strict=True)):
        key = jax.random.fold_in(weights_key, number)
        params[f"layer{number}.weight"] = jax.random.normal(key, (wide, narrow)) * (2.0 / wide) ** 0.5
        params[f"layer{number}.bias"] = jnp.zeros(narrow)
    return TrainState(params, tx.init(params), jax.random.key_data(dropout_key))


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
def accuracy(params: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
    """Fraction of images whose most likely class is the label."""
    return (logits(params, images).argmax(axis=1) == labels).mean()


@partial(jax.jit, static_argnames="images")
def epoch_order(seed: int, epoch: int, images: int) -> jax.Array:
    """The order of all images in an epoch, from seed and epoch alone: a cursor is enough to resume it."""
    return jax.random.permutation(jax.random.fold_in(jax.random.key(seed), epoch), images)
