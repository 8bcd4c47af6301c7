"""Amounts: cpu, memory, storage and the keys and values of a quota. Each refusal says what to write."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from components.settings import quantity
from components.settings.base import refusal
from components.settings.problems import kind_of


def _quantity_text(value: Any) -> Any:
    # YAML gives numbers for `cpu: 4` and `cpu: 0.5`; both are quantities. A boolean is an int to Python only.
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise refusal(
            f"it is {kind_of(value)}, and an amount is needed",
            "write a number or a text such as 4, 500m or 16Gi",
        )
    text = format(Decimal(str(value)), "f") if isinstance(value, (int, float)) else value
    if quantity.is_quantity(text):
        return text
    raise refusal("it is not a Kubernetes quantity" + _unit_hint(text), _unit_fix(text))


_WORDY_UNIT = re.compile(r"\s*([+-]?[\d.]+)\s*([kKmMgGtTpP])(i?)[bB]?\s*", re.ASCII)


def _unit_hint(text: str) -> str:
    if text != text.strip() or re.search(r"\d\s+[A-Za-z]", text):
        return ": it has a space in it"
    match = re.fullmatch(r"[+-]?[\d.]+([A-Za-z]+)", text, re.ASCII)
    return f": {match.group(1)!r} is not a unit" if match else ""


def _unit_fix(text: str) -> str:
    match = _WORDY_UNIT.fullmatch(text)
    if match is None:
        return "write an amount such as 4, 500m (thousandths), 16Gi (1024³ bytes) or 16G (1000³ bytes)"
    number, letter, binary = match.groups()
    decimal = "k" if letter.upper() == "K" else letter.upper()
    if binary:
        return f"write {number}{letter.upper()}i"
    return f"write {number}{letter.upper()}i (powers of 1024) or {number}{decimal} (powers of 1000)"


def _amount(text: str) -> str:
    if quantity.parse(text) < 0:
        raise refusal("it is less than 0", "write 0 or more")
    return quantity.canonical(text)


def _cpu(text: str) -> str:
    value = quantity.parse(text)
    if value <= 0:
        raise refusal(
            "a container needs more than 0 cpu",
            "write a number of cores such as 4, or thousandths such as 500m",
        )
    if value >= 10_000:
        raise refusal(
            f"cpu is counted in cores, and this is {value:f} of them",
            "write a number of cores such as 4, without a unit",
        )
    if value * 1000 % 1:
        raise refusal("cpu is given to a thousandth of a core at most", "write thousandths such as 500m")
    return quantity.canonical(text)


def _memory(text: str) -> str:
    value = quantity.parse(text)
    number = re.match(r"[+-]?[\d.]+", text)
    if value <= 0:
        raise refusal("a container needs more than 0 memory", "write an amount such as 16Gi")
    if text.endswith("m"):
        raise refusal(
            "'m' means thousandths, so this is less than it looks",
            f"write {number.group() if number else '16'}Mi",
        )
    if value < 1024**2:
        raise refusal(
            f"memory is counted in bytes, and this is {value:f} of them",
            f"write {number.group() if number else '16'}Gi",
        )
    return quantity.canonical(text)


_QUOTA_KEYS = frozenset(
    "cpu memory ephemeral-storage requests.cpu requests.memory requests.ephemeral-storage requests.storage"
    " limits.cpu limits.memory limits.ephemeral-storage pods persistentvolumeclaims services"
    " services.loadbalancers services.nodeports secrets configmaps resourcequotas".split()
)


_HUGE_PAGES = re.compile(r"(requests\.)?hugepages-\d+[KMGT]i")
_SIZES = re.compile(r"cpu|memory|storage|hugepages")


def _whole_counts(quota: dict[str, str]) -> dict[str, str]:
    for key, amount in quota.items():
        value = quantity.parse(amount)
        # Source: k8s.io/kubernetes, pkg/apis/core/validation, ValidateResourceQuantityValue. Of GPUs the API
        # server takes a fraction, which no Pod could use.
        if value != value.to_integral_value() and not _SIZES.search(key.split("/")[-1]):
            raise refusal("it counts whole things", f"write {round(value)}", at=key, value=amount)
    return quota


# Quota keys with a slash that are no extended resources. Source: Kubernetes documentation, Resource Quotas.
_OTHER_SLASHED = re.compile(
    r"count/.+|.+\.storageclass\.storage\.k8s\.io/.+|.+\.deviceclass\.resource\.k8s\.io/devices"
)


def _quota_key(key: str) -> str:
    if key in _QUOTA_KEYS or _OTHER_SLASHED.fullmatch(key) or _HUGE_PAGES.fullmatch(key):
        return key
    name = key.removeprefix("requests.").removeprefix("limits.")
    if "/" not in name:
        raise refusal(
            "Kubernetes has no such quota key",
            "write a key such as requests.nvidia.com/gpu, requests.cpu, limits.memory or pods",
        )
    # Source: Kubernetes documentation, Resource Quotas: of extended resources only `requests.` is accounted.
    if not key.startswith("requests."):
        raise refusal(
            "Kubernetes does not enforce this key: of an extended resource it counts requests only",
            f"write requests.{name}",
        )
    return key


def _storage_size(text: str) -> str:
    if quantity.parse(text) < 1024**2:
        raise refusal(
            f"storage is counted in bytes, and this is {quantity.parse(text):f} of them",
            "write an amount such as 100Gi",
        )
    return quantity.canonical(text)


Cpu = Annotated[str, BeforeValidator(_quantity_text), AfterValidator(_cpu)]
Memory = Annotated[str, BeforeValidator(_quantity_text), AfterValidator(_memory)]
StorageSize = Annotated[str, BeforeValidator(_quantity_text), AfterValidator(_storage_size)]
QuotaMap = Annotated[
    dict[
        Annotated[str, AfterValidator(_quota_key)],
        Annotated[str, BeforeValidator(_quantity_text), AfterValidator(_amount)],
    ],
    AfterValidator(_whole_counts),
]
