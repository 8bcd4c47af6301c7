"""The handwritten digits that ship inside scikit-learn: 1797 images of 8 by 8 pixels, read without importing
it.

Source: https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits (its test part).
"""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.recovery.errors import BadInput

FILE = "datasets/data/digits.csv.gz"
PIXELS, CLASSES, GREYS = 64, 10, 16
HELD_OUT_EVERY = 5


@dataclass(frozen=True)
class Digits:
    """Images as float32 (N, 64) from 0 to 1 and labels as int32 (N,); every fifth image is held out."""

    train_images: np.ndarray
    train_labels: np.ndarray
    held_out_images: np.ndarray
    held_out_labels: np.ndarray


def find_file() -> Path:
    """The data file in the installed scikit-learn. Importing the package would cost seconds and 100 MB."""
    spec = importlib.util.find_spec("sklearn")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / FILE).is_file():
            return path
    raise BadInput(f"The data set is missing: install scikit-learn, whose package contains {FILE}.")


def load() -> Digits:
    """Raises BadInput when the file is not the data set that it should be."""
    path = find_file()
    with gzip.open(path, "rt") as stream:
        table = np.loadtxt(stream, delimiter=",", dtype=np.float32)
    if table.shape != (1797, PIXELS + 1):
        raise BadInput(
            f"{path} has the shape {table.shape}, not (1797, {PIXELS + 1}): reinstall scikit-learn."
        )
    images, labels = table[:, :PIXELS] / GREYS, table[:, PIXELS].astype(np.int32)
    held_out = np.arange(len(labels)) % HELD_OUT_EVERY == 0
    return Digits(images[~held_out], labels[~held_out], images[held_out], labels[held_out])
