"""docs/configuration.md, made from the settings models, so that it can not say anything else than they do.

python -m ops.docs_configuration          prints it
python -m ops.docs_configuration --write  writes the file; a test fails while it is out of date
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from components.settings.node_pool import DEFAULT_KIND, KINDS
from components.settings.stack import StackSettings
from components.settings.team import DEFAULT_QUOTA
from ops.made_from_data import main

TARGET = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

HEAD = """\
# Configuration

<!-- Made by `python -m ops.docs_configuration --write` from components/settings.
     Change the models, not this file. -->

Everything is in the stack's file, `Pulumi.<stack>.yaml`, below `config:`, in the namespace `holdfast:`.
Values are structured YAML. A text may hold `${NAME}`: it is replaced from the environment, and an unset
variable is an error. An unknown key is an error too, with a suggestion. All problems are told at once, each
with its key, its value, why it can not work and what to write instead.

Complete examples are [Pulumi.dev.yaml](../Pulumi.dev.yaml) for the rehearsal, [Pulumi.prod-eks.yaml](../Pulumi.prod-eks.yaml) and
[Pulumi.prod-gke.yaml](../Pulumi.prod-gke.yaml). `pulumi config` shows what a stack says.

A node pool has one of four kinds, and each has a section of its own below;
[Node pools](environments.md#node-pools) says which is for what. `nodePoolArgs`, `nodeGroupArgs` and
`launchTemplateArgs` take every other argument of the cloud's resource, by its provider's own names (camelCase): an
argument that the provider does not have is refused with a suggestion, one that ownership or safety depends on with the setting that
decides it.
"""

# For the keys whose name and type say it to a programmer, and not yet to a reader of this page.
ALSO: Mapping[str, str] = {
    "StackSettings.environment": "Name of the environment; it labels everything that the stack makes.",
    **{
        f"{kind.__name__}.name": "Name of the pool; runs refer to it, and a cloud calls its pool by it."
        for kind in KINDS.values()
    },
    **{
        f"{model.__name__}.kind": f"`{kind}`" + (", the default." if kind == DEFAULT_KIND else ".")
        for kind, model in KINDS.items()
    },
    "StackSettings.node_pools": "GPU node pools, each of one of four kinds.",
    "NodeSelection.match_labels": "Labels that the nodes already have. Give this or `names`.",
    "NodeSelection.names": "Names of the nodes.",
    "Taint.key": "Key of the taint.",
    "Taint.value": "Value of the taint; the tolerations get the same one.",
    "Taint.effect": "What the taint does to Pods that do not tolerate it.",
    "GpuOperatorSettings.namespace": "Namespace of the operator. It is labelled for privileged Pods.",
    "TeamSettings.name": "Name of the team; runs refer to it.",
    "TeamSettings.quota": "Changes to the default quota, key by key. Default: "
    + ", ".join(f"`{key}: {value}`" for key, value in DEFAULT_QUOTA.items())
    + ".",
    "ComputeSettings.cpu": "A Kubernetes quantity of cores, such as `4` or `500m`.",
    "ComputeSettings.memory": "A Kubernetes quantity of bytes, such as `16Gi`.",
    "DnsSettings.namespace": "Namespace of the DNS Pods.",
    "DnsSettings.pod_labels": "Labels of the DNS Pods.",
    "EgressSettings.cidr": "Address range, such as `10.0.0.0/16`.",
    "EgressPort.port": "Port number.",
    "EgressPort.protocol": "Protocol of the port.",
    "CheckpointStorageSettings.kind": "Only `existing-class` in this release: a StorageClass of the cluster.",
    "CheckpointStorageSettings.storage_class": "StorageClass whose volumes several nodes can mount at once.",
    "CheckpointStorageSettings.size": "Size of the claim.",
    "CheckpointStorageSettings.claim_name": "Name of the claim in the team's namespace.",
    "CheckpointStorageSettings.access_mode": "A run that moves to another node needs its volume there.",
    "RunSettings.id": "Id of the run; its Job is `training-<id>`, its checkpoints are in /checkpoints/<id>.",
    "RunSettings.team": "Name of the team; the run is in its namespace and counts against its quota.",
    "RunSettings.pool": "Name of the node pool that it runs on.",
    "RunSettings.image_pull_policy": "As in a Pod. With a digest `IfNotPresent` never runs an old image.",
    "RunSettings.image_pull_secrets": "Names of Secrets for the image's registry.",
    "RunSettings.controller": "`job`: a plain Kubernetes Job, which needs nothing installed and is delayed"
    " more by each preemption. `jobset`: a JobSet, restarted at once after every one.",
    "RunSettings.priority_class": "Name of a PriorityClass.",
    "RunSettings.labels": "More labels for Job and Pod.",
    "RunSettings.annotations": "More annotations for the Pod.",
    "RunSettings.user_id": "The uid of the container; the checkpoint volume must be writable for it.",
    "RunSettings.backoff_limit": "Failures that are retried. Preemptions do not count.",
    "RunRequests.cpu": "Cores that are reserved.",
    "RunRequests.memory": "Memory that is reserved.",
    "RunLimits.cpu": "Cores at most.",
    "RunLimits.memory": "Memory at most; more ends the container.",
    "RunSecret.name": "Name of the Secret.",
    "RunSecret.key": "One key of it; needs `env`.",
    "RunSecret.env": "Environment variable for that key.",
    "RunSecret.optional": "True: the run starts without the Secret too.",
    "RunVolume.name": "Name of the volume in the Pod.",
    "RunVolume.mount_path": "Absolute path in the container.",
    "RunVolume.claim": "Name of a PersistentVolumeClaim. Give one of `claim`, `configMap` and `secret`.",
    "RunVolume.config_map": "Name of a ConfigMap.",
    "RunVolume.secret": "Name of a Secret.",
    "RunVolume.read_only": "False: the run may write to the claim.",
    "RunVolume.sub_path": "A folder of the volume instead of all of it.",
}
LONGEST_DEFAULT = 90


def render() -> str:
    """The whole page."""
    parts = [HEAD]
    for path, model in sections(StackSettings, "holdfast:"):
        parts.append(_section(path, model))
    return "\n".join(parts)


def sections(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """The model and every model below it, each with the path of its keys, in the order of the fields."""
    yield path, model
    for name, field in model.model_fields.items():
        models, many = _models_of(field.annotation)
        key = f"{path}{'' if path.endswith(':') else '.'}{field.alias or name}{'[]' if many else ''}"
        if len(models) < 2:
            for below in models:
                yield from sections(below, key)
            continue
        # A choice of models: each of them first, and what is below them after, once where they share it.
        yield from ((f"{key} ({_tag(below)})", below) for below in models)
        yield from dict.fromkeys(inner for below in models for inner in [*sections(below, key)][1:])


def meaning(model: type[BaseModel], name: str) -> str:
    """What one key means: our words, its docstring, or that of the model behind it; else empty."""
    if text := ALSO.get(f"{model.__name__}.{name}") or descriptions(model).get(name):
        return text
    models, _many = _models_of(model.model_fields[name].annotation)
    return inspect.cleandoc(models[0].__doc__ or "").split("\n\n")[0].replace("\n", " ") if models else ""


@cache
def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """Field name -> the docstring below it in the source, of the class and those it comes from."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)) or kind is BaseModel:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and _is_text(text):
                found[field.target.id] = " ".join(text.value.value.split())  # type: ignore[attr-defined]
    return found


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _section(path: str, model: type[BaseModel]) -> str:
    schema = model.model_json_schema(by_alias=True)
    title = "The stack" if path == "holdfast:" else f"`{path}`"
    lines = [
        f"## {title}",
        "",
        inspect.cleandoc(model.__doc__ or ""),
        "",
        "| key | default | type | meaning |",
    ]
    lines.append("|---|---|---|---|")
    for name, field in model.model_fields.items():
        key = field.alias or name
        kind = _kind(schema["properties"].get(key, {}), schema.get("$defs", {}))
        lines.append(f"| `{key}` | {_default(field)} | {kind} | {_cell(meaning(model, name))} |")
    return "\n".join(lines) + "\n"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined or value is None:
        return "none"
    text = json.dumps(_plain(value), ensure_ascii=False)
    if isinstance(value, BaseModel) and (text == "{}" or len(text) > LONGEST_DEFAULT):
        return "see below"
    return f"`{_cell(text)}`"


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, exclude_none=True)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _kind(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    """A few words for a JSON schema: enough to write the value."""
    if "$ref" in schema:
        return _kind(defs.get(schema["$ref"].rsplit("/", 1)[-1], {}), defs)
    if options := schema.get("anyOf") or schema.get("oneOf"):
        kinds = [_kind(option, defs) for option in options if option.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return ", ".join(f"`{item}`" for item in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_kind(schema.get('items') or {}, defs)}"
    if kind == "integer":
        low, high = schema.get("minimum"), schema.get("maximum")
        return "whole number" + (f", {low} to {high}" if low is not None and high is not None else "")
    return {"object": "map", "string": "text", "boolean": "true or false", "number": "number"}.get(
        str(kind), "value"
    )


def _models_of(annotation: Any) -> tuple[list[type[BaseModel]], bool]:
    """The settings models in a field's type (several in a union of kinds), and whether it holds a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation], False
    origin = typing.get_origin(annotation)
    if origin not in (tuple, list, types.UnionType, typing.Union, typing.Annotated):
        return [], False
    inner = [_models_of(argument) for argument in typing.get_args(annotation)]
    found = [model for models, _ in inner for model in models]
    return found, bool(found) and (origin in (tuple, list) or any(many for _, many in inner))


def _tag(model: type[BaseModel]) -> str:
    """Which of several kinds a model is, as its configuration says it."""
    (kind,) = typing.get_args(model.model_fields["kind"].annotation)
    return f"kind: {kind}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main(TARGET, render)
