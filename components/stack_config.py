"""The stack's configuration as plain values: the one place that reads it."""

from __future__ import annotations

import json
from typing import Any

from pulumi.runtime import config as raw_config

from components.settings.stack import NAMESPACE, SETTING_KEYS


def read_stack_config() -> tuple[dict[str, Any], frozenset[str]]:
    """Every value of the namespace, parsed, by key without the namespace; and the keys that are secret.

    Unknown keys are given too, so that the loader can name them: `pulumi.Config` only answers for keys that
    one knows.
    """
    given = {**raw_config.get_config_env(), **raw_config.CONFIG.get()}
    prefix = f"{NAMESPACE}:"
    own = {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}
    values = {key: value if SETTING_KEYS.get(key) == "text" else _parsed(value) for key, value in own.items()}
    return values, frozenset(key for key in own if raw_config.is_config_secret(prefix + key))


def _parsed(value: Any) -> Any:
    """Structured values arrive as JSON. What is no JSON stays a text, and the loader says what should
    stand there.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value
