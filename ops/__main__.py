"""`python -m ops`, and what the entry script starts."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parent.parent)
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from ops.cli import main  # noqa: E402  (the path above makes it importable from any folder)

if __name__ == "__main__":
    sys.exit(main())
