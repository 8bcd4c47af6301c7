"""pydantic's errors in plain words."""

from __future__ import annotations

import datetime
import difflib
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from components.settings import quantity
from components.settings.problems import Problem, full_key, kind_of, show

Path = tuple[str | int, ...]

# What to write for a key that is missing.
_EXAMPLES = {
    "environment": "dev",
    "cluster": "{kubeconfig: ~/.kube/config, context: my-cluster}",
    "kubeconfig": "~/.kube/config",
    "context": "the context to deploy to; `kubectl config get-contexts` lists them",
    "nodePools": "a list with at least one pool of GPU nodes",
    "name": "a name such as ml-batch",
    "profile": "a row of policies/ownership.json, such as self-managed-driver-toolkit",
    "selectNodes": "{matchLabels: {…}} or {names: […]}",
    "gpusPerNode": "the number of GPUs of one node, such as 8",
    "eks": "the node group on EKS; its settings are in docs/configuration.md",
    "gke": "the node pool on GKE; its settings are in docs/configuration.md",
    "group": "the team's group as your identity provider names it",
    "checkpointStorage": "{storageClass: a class of shared volumes}",
    "storageClass": "a class of shared volumes; `kubectl get storageclass` lists the cluster's",
    "id": "a name for the run, such as run-001",
    "team": "the name of one of holdfast:teams",
    "pool": "the name of one of holdfast:nodePools",
    "image": "the trainer's image as name@sha256:<64 hex digits>",
    "effect": "NoSchedule",
    "key": "a key such as dedicated",
    "mountPath": "a path such as /data",
    "cidr": "a range such as 10.0.0.0/8",
    "port": "a port such as 443",
    "cpu": "a number of cores such as 4",
    "memory": "an amount such as 16Gi",
    "eks.cluster": "the name of the EKS cluster, as `aws eks list-clusters` shows it",
    "gke.cluster": "the name of the GKE cluster, as `gcloud container clusters list` shows it",
    "subnetIds": "the subnets of the nodes, such as [subnet-0a1b2c3d4e5f60718]",
    "nodeRoleArn": "the nodes' role, such as arn:aws:iam::123456789012:role/gpu-nodes",
    "amiType": "what the nodes run, such as AL2023_x86_64_NVIDIA",
    "instanceTypes": "instance types with equal GPUs, such as [p5.48xlarge]",
    "maxSize": "how many nodes there may be, such as 4",
    "location": "the cluster's region or zone, such as us-central1",
    "machineType": "a machine type with GPUs, such as a3-highgpu-8g",
    "serviceAccount": "the nodes' service account, such as gpu-nodes@my-project.iam.gserviceaccount.com",
    "maxNodes": "how many nodes there may be, such as 4",
    "strategy": "TIME_SHARING or MPS",
    "maxClientsPerGpu": "how many containers share one GPU, such as 2",
    "reason": "a sentence that says what is different on these nodes and who decided it",
    "layers": "{driver: …}, {toolkit: …} or {devicePlugin: …} with the name of the owner",
}
# What Kubernetes calls the same thing: such keys are copied from a manifest.
_KUBERNETES_NAMES = {
    "nvidia.com/gpu": "gpus",
    "requests.nvidia.com/gpu": "gpus",
    "resources": "requests and limits",
    "activeDeadlineSeconds": "deadlineSeconds",
    "ttlSecondsAfterFinished": "keepFinishedSeconds",
    "terminationGracePeriodSeconds": "graceSeconds",
    "runAsUser": "userId",
    "runAsGroup": "groupId",
    "fsGroup": "groupId",
    "envFrom": "secrets",
    "nodeSelector": "pool",
    "tolerations": "pool",
    "runtimeClassName": "pool",
    "accessModes": "accessMode",
    "persistentVolumeClaim": "claim",
    "spot": "capacity",
    "repo": "repository",
    "tag": "version",
}
_DURATION = re.compile(r"\s*(\d+)\s*(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)\s*", re.IGNORECASE)
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def explain(error: ValidationError, model: type[BaseModel], prefix: Path) -> list[tuple[Path, Problem]]:
    """Every error of one validation, with the path of its key."""
    errors = error.errors(include_url=False)
    refused = {details["loc"][:-1] for details in errors}
    # pydantic counts a list without its refused elements; that it is too short then is no second problem.
    return [
        _explain(details, model, prefix)
        for details in errors
        if details["type"] != "too_short" or details["loc"] not in refused
    ]


def _explain(details: Mapping[str, Any], model: type[BaseModel], prefix: Path) -> tuple[Path, Problem]:
    inner: Path = tuple(details["loc"])
    value = details["input"]
    context = details.get("ctx", {})
    of_key = bool(inner) and (inner[-1] == "[key]" or details["type"] == "invalid_key")
    if of_key:
        inner, value = tuple(part for part in inner if part != "[key]"), None
    if of_key and not isinstance(inner[-1], str):
        at, inner = (), (*inner[:-1], str(inner[-1]))
        reason, fix = (
            "YAML reads the key as a number, and text is needed",
            f'put the key in quotes: "{inner[-1]}"',
        )
    elif of_key and details["type"] == "literal_error":
        at = ()
        reason, fix = _choose(str(inner[-1]), context)
    elif details["type"] == "holdfast":
        at = tuple(context["at"])
        value = context["value"] if at else value
        reason, fix = context["reason"], context["fix"]
    elif details["type"] == "missing":
        at, value = (), None
        reason, fix = "it is missing", missing_fix(*(str(part) for part in reversed((*prefix, *inner))))
    elif details["type"] == "extra_forbidden":
        # Nothing is known about what stands under an unknown key, not even whether it is a secret.
        at, value = (), None
        reason, fix = unknown_key(str(inner[-1]), model_at(model, inner[:-1]))
    else:
        at = ()
        reason, fix = _wrong_value(details["type"], value, context, str(inner[-1]) if inner else "")
    path = (*prefix, *inner, *at)
    shown = None if value is None or isinstance(value, (Mapping, list, tuple)) else show(value, *path)
    return path, Problem(full_key(*path), shown, reason, fix)


def missing_fix(key: str, parent: str = "", *_above: str) -> str:
    """What to add for a key that is required, below `parent`."""
    example = _EXAMPLES.get(f"{parent}.{key}") or _EXAMPLES.get(key)
    return f"add {key}: {example}" if example else f"add {key}"


def unknown_key(key: str, model: type[BaseModel] | None) -> tuple[str, str]:
    """Reason and fix for a key that a model does not have."""
    keys = [field.alias or name for name, field in model.model_fields.items()] if model else []
    reason = "there is no such setting, so it would have no effect"
    known = (key, _KUBERNETES_NAMES.get(key, key))
    inside = [
        next(f"{outer}.{name}" for name in known if name in below)
        for outer in keys
        if model and (below := _aliases(model_at(model, (outer,)))) and set(known) & set(below)
    ]
    meant = closest(key, keys) or _KUBERNETES_NAMES.get(key)
    if meant and set(meant.split(" and ")) <= set(keys):
        return reason, f"did you mean {meant}? Otherwise remove it"
    if inside:
        return reason, f"did you mean {' and '.join(inside)}? Otherwise remove it"
    return reason, f"remove it; the settings here are {', '.join(keys)}"


def closest(word: str, words: Iterable[str]) -> str | None:
    """The word that was probably meant; spelling with '_', '-' or other capitals counts as the same."""
    plain = {re.sub(r"[^a-z0-9]", "", candidate.lower()): candidate for candidate in words}
    found = difflib.get_close_matches(re.sub(r"[^a-z0-9]", "", word.lower()), plain, n=1, cutoff=0.7)
    return plain[found[0]] if found else None


def model_at(model: type[BaseModel] | None, path: Path) -> type[BaseModel] | None:
    """The settings model that stands at a path below `model`; None if none does."""
    current: Any = model
    for part in path:
        if isinstance(current, type) and issubclass(current, BaseModel):
            fields = {field.alias or name: field for name, field in current.model_fields.items()}
            current = _bare(fields[part].annotation) if part in fields else None
        else:
            arguments = typing.get_args(current)
            current = _bare(arguments[0] if isinstance(part, int) else arguments[-1]) if arguments else None
    return current if isinstance(current, type) and issubclass(current, BaseModel) else None


def _bare(annotation: Any) -> Any:
    while True:
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        elif origin in (typing.Union, types.UnionType):
            annotation = next(item for item in typing.get_args(annotation) if item is not type(None))
        else:
            return annotation


def _aliases(model: type[BaseModel] | None) -> Sequence[str]:
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def needs_map(value: Any) -> tuple[str, str]:
    """Reason and fix for something that stands where a map is needed."""
    fix = "write its settings below it, as key: value lines"
    if _is_empty(value):
        fix += ", or remove the key"
    if isinstance(value, (list, tuple)):
        fix = "remove the '- ' before the keys"
    return f"it is {_what(value)}, and a map is needed", fix


def needs_list(value: Any, required: bool = False) -> tuple[str, str]:
    """Reason and fix for something that stands where a list is needed."""
    fix = "begin each element on its own line with '- '"
    if _is_empty(value) and not required:
        fix += ", or write [] if there is none"
    return f"it is {_what(value)}, and a list is needed", fix


def _is_empty(value: Any) -> bool:
    """A key with nothing below it; the engine gives an empty text for it."""
    return value is None or value == ""


def _what(value: Any) -> str:
    return "empty" if value == "" else kind_of(value)


def _wrong_value(kind: str, value: Any, context: Mapping[str, Any], key: str) -> tuple[str, str]:
    if kind in ("model_type", "dict_type", "mapping_type"):
        return needs_map(value)
    if kind in ("tuple_type", "list_type"):
        return needs_list(value)
    if kind == "string_type":
        return _needs_text(value)
    if kind == "int_type":
        return _needs_whole(value, key)
    if kind == "bool_type":
        return _needs_flag(value)
    if kind == "literal_error" and value is None:
        return _needs_text(value)
    if kind == "literal_error":
        return _choose(str(value), context)
    if kind == "greater_than_equal":
        return f"it is less than {context['ge']}", f"write {context['ge']} or more"
    if kind == "less_than_equal":
        return f"it is more than {context['le']}", f"write {context['le']} or less"
    if kind == "too_short":
        return "it is empty", f"write at least {context['min_length']} element" + (
            "s" if context["min_length"] > 1 else ""
        )
    return "it can not be used here", "look the setting up in the configuration table of the README"


def _choose(text: str, context: Mapping[str, Any]) -> tuple[str, str]:
    choices = re.findall(r"'([^']*)'", context["expected"])
    meant = closest(text, choices)
    return f"it is not one of {', '.join(choices)}", f"write {meant or 'one of ' + ', '.join(choices)}"


def _needs_text(value: Any) -> tuple[str, str]:
    if value is None:
        return "it is empty (null)", "write a value, or remove the key"
    if isinstance(value, (bool, int, float)):
        spelled = str(value).lower() if isinstance(value, bool) else str(value)
        return f"YAML reads it as {kind_of(value)}, and text is needed", f'put it in quotes: "{spelled}"'
    if isinstance(value, datetime.date):
        return "YAML reads it as a date, and text is needed", f'put it in quotes: "{value}"'
    return f"it is {kind_of(value)}, and text is needed", "write one value"


def _needs_whole(value: Any, key: str) -> tuple[str, str]:
    if isinstance(value, float) and value.is_integer():
        return "it has a decimal point, and a whole number is needed", f"write {int(value)}"
    if isinstance(value, float) and math.isfinite(value):
        reason = "it is not a whole number"
        if "gpu" in key.lower():
            reason = "a GPU can not be divided: nvidia.com/gpu takes whole numbers"
        return reason, f"write {max(1, round(value))}"
    if isinstance(value, str):
        if re.fullmatch(r"\s*[+-]?\d+\s*", value):
            return "it is text, and a whole number is needed", f"write {int(value)}, without quotes"
        if "gpu" in key.lower() and quantity.is_quantity(value.strip()):
            amount = quantity.parse(value.strip())
            whole = amount == amount.to_integral_value()
            return (
                (
                    "it is an amount with a unit, and a whole number is needed"
                    if whole
                    else "a GPU can not be divided: nvidia.com/gpu takes whole numbers"
                ),
                f"write {max(1, round(amount))}",
            )
        duration = _DURATION.fullmatch(value)
        unit = 60 if key.endswith("Minutes") else 1
        if duration and key.endswith(("Seconds", "Minutes")):
            seconds = int(duration.group(1)) * _UNIT_SECONDS[duration.group(2)[0].lower()]
            return (
                f"it is text, and {key} is a whole number of {'minutes' if unit == 60 else 'seconds'}",
                f"write {max(1, seconds // unit)}",
            )
    return f"it is {kind_of(value)}, and a whole number is needed", "write a whole number such as 1"


def _needs_flag(value: Any) -> tuple[str, str]:
    if isinstance(value, str) and value.strip().lower() in ("true", "yes", "on", "y"):
        return "it is text, and true or false is needed", "write true, without quotes"
    if isinstance(value, str) and value.strip().lower() in ("false", "no", "off", "n"):
        return "it is text, and true or false is needed", "write false, without quotes"
    return f"it is {kind_of(value)}, and true or false is needed", "write true or false"
