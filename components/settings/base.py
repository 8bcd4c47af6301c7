"""What every settings model shares: camelCase keys, no unknown keys, no change after loading."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Strict
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

# YAML has its own numbers and booleans: text such as "2" or "yes" in their place is a mistake to be told.
Whole = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]

T = TypeVar("T")


class Settings(BaseModel):
    """A part of the configuration. Python names are snake_case; the YAML keys are their camelCase aliases."""

    # Deferred: a stack without a pool in a cloud does not wait for the validators of those pools to be built.
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, defer_build=True)


def refusal(
    reason: str, fix: str, *, at: str | tuple[str, ...] = (), value: Any = None
) -> PydanticCustomError:
    """The error of a validator: `reason` says why the value can not work, `fix` what to write instead.

    `at` names a key below the validated value, a path of keys if several, and `value` is what stands there.
    """
    # The texts travel in the context, because pydantic formats the message template with str.format.
    path = (at,) if isinstance(at, str) else at
    return PydanticCustomError(
        "holdfast", "{reason}", {"reason": reason, "fix": fix, "at": path, "value": value}
    )
