"""From parsed configuration values to validated settings, or every problem at once. No Pulumi in here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from components.settings.stack import StackSettings


def load_settings(
    values: Mapping[str, Any], environ: Mapping[str, str], secret_keys: Collection[str] = ()
) -> StackSettings:
    """The stack's settings.

    `values`: every configuration value of the namespace `holdfast`, parsed, by key without the namespace.
    `environ`: where `${NAME}` in texts comes from. `secret_keys`: keys whose values are never shown.
    Raises SettingsError with all problems.
    """
    raise NotImplementedError
