"""The environments that are tracked to be copied, as configurations for the recording engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]


def tracked(stack: str) -> Callable[[dict[str, Any]], None]:
    """Puts `Pulumi.<stack>.yaml` in a configuration's place, with the kubeconfig of the test's own environment."""

    def change(config: dict[str, Any]) -> None:
        text = (ROOT / f"Pulumi.{stack}.yaml").read_text()
        wanted = yaml.safe_load(text.replace("${KUBECONFIG}", "${HOLDFAST_KUBECONFIG}"))["config"]
        config.clear()
        config.update(wanted)

    return change
