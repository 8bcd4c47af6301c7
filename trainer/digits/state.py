"""The training state as safetensors files: named tensors and no pickle, so that reading one runs no code."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import load_file, save

from trainer.digits.model import TrainState
from trainer.recovery.errors import BadInput

FILE = "state.safetensors"
RNG = {"file": FILE, "tensor": ".rng"}  # where the state of the random stream is, for the manifest


class HostMemory:
    """Memory for one copy of the state, taken once: fresh memory for each save costs ten times the copy."""

    def __init__(self) -> None:
        self._tensors: dict[str, np.ndarray] = {}

    def copy(self, state: TrainState) -> dict[str, np.ndarray]:
        """Params, optimizer state and RNG key, each tensor named by its place; valid until the next copy.

        A copy also on a CPU, where what JAX hands out is the device's own memory: the next step donates it.
        """
        for name, value in _named(state).items():
            if name not in self._tensors:
                self._tensors[name] = np.empty_like(value)
            np.copyto(self._tensors[name], value)
        return self._tensors


def write_tensors(tensors: dict[str, np.ndarray], path: Path, least_seconds: float = 0.0) -> None:
    """Write named tensors, most of `least_seconds` with half of the bytes on the volume."""
    began = time.monotonic()
    content = memoryview(save(tensors))
    half = len(content) // 2
    # By Python, so that a full volume is an OSError: safetensors' own writing raises a type of its own.
    with path.open("wb") as stream:
        stream.write(content[:half])
        stream.flush()
        time.sleep(max(0.0, began + least_seconds - time.monotonic()))
        stream.write(content[half:])


def write_weights(params: dict[str, jax.Array], path: Path) -> None:
    """Write the weights alone: the run's final artifact."""
    write_tensors({name: np.asarray(value) for name, value in params.items()}, path)


def read_state(path: Path, like: TrainState) -> TrainState:
    """Read a state that `write_tensors` wrote; `like` gives shapes and types. Raises BadInput when it belongs to
    another model.
    """
    found = load_file(path)
    wanted = dict(_places(like))
    for name, tensor in wanted.items():
        if name not in found or found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
            there = f"{found[name].dtype}{found[name].shape}" if name in found else "missing"
            raise BadInput(
                f"The checkpoint {path} is of another model: the tensor {name!r} is {there} instead of "
                f"{tensor.dtype}{tensor.shape}; use a new run id for a changed model."
            )
    values = [jax.numpy.asarray(found[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(like), values)


def _named(state: TrainState) -> dict[str, np.ndarray]:
    # Not ascontiguousarray, which makes a vector of a scalar: the resumed step would be another program.
    return {name: np.asarray(jax.device_get(leaf), order="C") for name, leaf in _places(state)}


def _places(state: TrainState) -> list[tuple[str, Any]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]
