"""Run once while an image is built: makes the installed packages small and quick to import.

    python3 prepare_packages.py FOLDER

Removes tests, packages that are never imported, and of scikit-learn all but its data file; compiles byte code
that is never checked against its source again, because the image's root is read-only and its file times are
not those of the build.
"""

from __future__ import annotations

import compileall
import py_compile
import shutil
import sys
from pathlib import Path

DATA = "sklearn/datasets/data/digits.csv.gz"
# Needed by scikit-learn alone, and SciPy by JAX only for jax.scipy and the like. Together 150 MB that the
# reference program never imports; an image of your own that needs them leaves this line empty.
NEVER_IMPORTED = ("joblib", "narwhals", "cloudpickle", "threadpoolctl.py", "scipy", "scipy.libs")


def slim(folder: Path) -> None:
    """Remove what is never read at run time. The packages' metadata stays, as a list of what came in."""
    if (folder / DATA).is_file():
        content = (folder / DATA).read_bytes()
        for name in ("sklearn", "scikit_learn.libs", *NEVER_IMPORTED):
            path = folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        (folder / DATA).parent.mkdir(parents=True)
        (folder / DATA).write_bytes(content)
    for path in [*folder.rglob("tests"), *folder.rglob("__pycache__")]:
        if path.is_dir():
            shutil.rmtree(path)


def main() -> int:
    folder = Path(sys.argv[1])
    slim(folder)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    # A package may ship a file for another Python version, which does not compile and is not imported either.
    compileall.compile_dir(folder, quiet=2, workers=0, invalidation_mode=mode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
