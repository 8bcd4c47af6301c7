"""The formats of single values: Kubernetes names, labels, quantities, paths. Each refusal says what to write instead."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from components.settings import quantity
from components.settings.base import refusal
from components.settings.image import digest_image

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VERSION = re.compile(r"v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
# `training-<id>-r9999` must stay within the 63 characters of the label `job-name`.
LONGEST_RUN_ID = 63 - len("training-") - len("-r9999")
RESERVED_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
OUR_ENV = ("HOME", "TMPDIR")


def _slug(text: str, longest: int) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")[:longest].strip("-") or "ml-batch"


def _dns_label(longest: int, why: str = "") -> Callable[[str], str]:
    def check(text: str) -> str:
        if not _LABEL.fullmatch(text):
            raise refusal(
                "it is not a Kubernetes name: lower-case letters, digits and '-', beginning and ending with a letter or digit",
                f"write {_slug(text, longest)!r}",
            )
        if len(text) > longest:
            raise refusal(f"it has {len(text)} characters, and {why or 'a Kubernetes name'} has at most {longest}", "shorten it")
        return text

    return check


def _dns_subdomain(text: str) -> str:
    if not _SUBDOMAIN.fullmatch(text) or len(text) > 253:
        raise refusal(
            "it is not the name of a Kubernetes object: lower-case letters, digits, '-' and '.', at most 253 characters",
            f"write {_slug(text, 253)!r}, or the name that the object really has",
        )
    return text


def _label_key(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if (slash and not _SUBDOMAIN.fullmatch(prefix)) or not _QUALIFIED.fullmatch(name) or len(name) > 63 or len(prefix) > 253:
        raise refusal(
            "it is not a label key: a name of at most 63 letters, digits, '-', '_' and '.', with an optional DNS prefix and '/'",
            "write a key such as pool or example.com/pool",
        )
    return text


def _label_value(text: str) -> str:
    if text and (not _QUALIFIED.fullmatch(text) or len(text) > 63):
        raise refusal(
            "it is not a label value: at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit",
            "write a value such as gpu",
        )
    return text


def _quantity_text(value: Any) -> Any:
    # YAML gives numbers for `cpu: 4` and `cpu: 0.5`; both are quantities. A boolean is an int to Python only.
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return value
    text = format(Decimal(str(value)), "f") if isinstance(value, (int, float)) else value
    if quantity.is_quantity(text):
        return text
    raise refusal("it is not a Kubernetes quantity" + _unit_hint(text), _unit_fix(text))


_WORDY_UNIT = re.compile(r"\s*([+-]?[\d.]+)\s*([kKmMgGtTpP])(i?)[bB]?\s*")


def _unit_hint(text: str) -> str:
    if text != text.strip() or re.search(r"\d\s+[A-Za-z]", text):
        return ": it has a space in it"
    match = re.fullmatch(r"[+-]?[\d.]+([A-Za-z]+)", text)
    return f": {match.group(1)!r} is not a unit" if match else ""


def _unit_fix(text: str) -> str:
    match = _WORDY_UNIT.fullmatch(text)
    if match is None:
        return "write a number with a unit such as 500m (thousandths), 16Gi (1024³ bytes) or 16G (1000³ bytes)"
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
        raise refusal("a container needs more than 0 cpu", "write a number of cores such as 4, or thousandths such as 500m")
    if value >= 10_000:
        raise refusal(f"cpu is counted in cores, and this is {value:f} of them", "write a number of cores such as 4, without a unit")
    if value * 1000 % 1:
        raise refusal("cpu is given to a thousandth of a core at most", "write thousandths such as 500m")
    return quantity.canonical(text)


def _memory(text: str) -> str:
    value = quantity.parse(text)
    number = re.match(r"[+-]?[\d.]+", text)
    if value <= 0:
        raise refusal("a container needs more than 0 memory", "write an amount such as 16Gi")
    if text.endswith("m"):
        raise refusal("'m' means thousandths, so this is less than it looks", f"write {number.group() if number else '16'}Mi")
    if value < 1024**2:
        raise refusal(f"memory is counted in bytes, and this is {value:f} of them", f"write {number.group() if number else '16'}Gi")
    return quantity.canonical(text)


def _quota_key(key: str) -> str:
    name = key.removeprefix("requests.").removeprefix("limits.")
    extended = "/" in name and not key.startswith("count/") and ".storageclass.storage.k8s.io/" not in key
    # Source: Kubernetes documentation, Resource Quotas: of extended resources only `requests.` is accounted.
    if extended and not key.startswith("requests."):
        raise refusal("Kubernetes does not enforce this key: of an extended resource it counts requests only", f"write requests.{name}")
    known = ("cpu", "memory", "storage", "ephemeral-storage")
    plain = ("pods", "persistentvolumeclaims", "services", "secrets", "configmaps", "replicationcontrollers", "resourcequotas")
    plain += ("services.loadbalancers", "services.nodeports")
    if extended or key.startswith("count/") or ".storageclass.storage.k8s.io/" in key or key in plain:
        return key
    if name in known and key != "storage" and key != "limits.storage":
        return key
    raise refusal("Kubernetes has no such quota key", "write a key such as requests.nvidia.com/gpu, requests.cpu, limits.memory or pods")


def _absolute(text: str) -> str:
    if not text.startswith("/") or ".." in text.split("/") or ":" in text:
        raise refusal("it is not an absolute path without '..' and ':'", "write a path such as /data")
    if text.rstrip("/") == "":
        raise refusal("a mount at / hides the image", "write a path such as /data")
    return text.rstrip("/")


def _sub_path(text: str) -> str:
    if text.startswith("/") or ".." in text.split("/") or not text:
        raise refusal("it is not a path inside the volume", "write a relative path without '..', such as digits/2024")
    return text


def _kubeconfig(text: str) -> str:
    if "\n" in text or "apiVersion" in text or text.lstrip().startswith("{"):
        raise refusal(
            "this is the content of a kubeconfig, not its path: it would go into the state and change with every certificate",
            "write the file's path, such as ${HOME}/.kube/config",
        )
    if not text.startswith(("/", "~/")):
        raise refusal(
            "a relative path means another file in every folder",
            "write an absolute path, ~/.kube/config, or a path by a variable such as ${KUBECONFIG}",
        )
    return text


def _not_blank(what: str, example: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not text.strip() or text != text.strip():
            raise refusal(f"{what} is blank or has blanks around it", f"write {example}")
        return text

    return check


def _group(text: str) -> str:
    if not text.strip() or text.startswith("system:"):
        raise refusal(
            "the groups of Kubernetes itself hold far more people than one team" if text.strip() else "the group is blank",
            "write the team's group as your identity provider names it, such as ml-batch-engineers",
        )
    return text


def _namespace(text: str) -> str:
    if text in RESERVED_NAMESPACES:
        raise refusal("this namespace belongs to Kubernetes itself, and the team's rules would close it", "write a namespace of the team's own")
    return text


def _env_name(text: str) -> str:
    if not _ENV_NAME.fullmatch(text):
        raise refusal("it is not the name of an environment variable", "write letters, digits and '_', such as LEARNING_RATE")
    if text in OUR_ENV or text.startswith("HOLDFAST_"):
        raise refusal("the Job sets this variable itself", "choose another name")
    return text


def _http_url(text: str) -> str:
    if text.startswith("oci://"):
        raise refusal("a chart in an OCI registry has its own key", f"write oci: {text}/<chart> in place of repository")
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text):
        raise refusal("it is not the address of a chart repository", "write an address such as https://helm.ngc.nvidia.com/nvidia")
    return text.rstrip("/")


def _oci(text: str) -> str:
    if not re.fullmatch(r"oci://[^\s/]+/\S+[^\s/]", text):
        raise refusal("it is not a chart in an OCI registry", "write oci://<host>/<path>/gpu-operator, without the version")
    if ":" in text.removeprefix("oci://").split("/", 1)[1]:
        raise refusal("the version stands in the reference", "move what follows the last ':' to version")
    return text


def _chart_path(text: str) -> str:
    if text.startswith(("/", "~")):
        raise refusal("an absolute path goes into the state and differs on every machine", "write the path relative to the project, such as ./charts/gpu-operator")
    if not text.strip():
        raise refusal("the path is blank", "write the chart's folder relative to the project, such as ./charts/gpu-operator")
    return text


def _version(text: str) -> str:
    if not _VERSION.fullmatch(text):
        raise refusal("it is not one exact version, so the next update may install another chart", "write a version such as v26.7.0")
    return text


def _cidr(text: str) -> str:
    try:
        ipaddress.ip_network(text, strict=True)
    except ValueError:
        raise refusal("it is not an address range", _cidr_fix(text)) from None
    return text


def _cidr_fix(text: str) -> str:
    try:
        return f"write {ipaddress.ip_network(text, strict=False)}"
    except ValueError:
        return "write a range such as 10.0.0.0/8, or 203.0.113.7/32 for one address"


def _later(known: str, later: dict[str, str], what: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if isinstance(value, str) and value != known:
            reason = later.get(value)
            raise refusal(
                reason or f"there is no {what} {value!r}",
                f"write {known}" + (f", or wait for the release that brings {value}" if value in later and "later" in (reason or "") else ""),
            )
        return value

    return check


_CLOUD_POOLS = {
    "eks": "pools that the stack creates on EKS come in a later release",
    "gke": "pools that the stack creates on GKE come in a later release",
    "existing": "pools that the stack only names come in a later release",
}
_NOT_SHARED = "it is gone with the Pod or tied to one node, so the next attempt can not read it"
_STORAGE_KINDS = {
    **{kind: f"checkpoint storage on {kind} comes in a later release" for kind in ("efs", "fsx-lustre", "filestore", "s3", "gcs")},
    **{kind: _NOT_SHARED for kind in ("emptyDir", "empty-dir", "hostPath", "local", "ebs", "pd", "disk")},
}
# StorageClasses that clouds and local clusters ship and whose volumes one node alone can mount.
_SINGLE_NODE_CLASSES = (
    ("gp2", "gp3", "io1", "io2", "ebs-sc", "standard-rwo", "premium-rwo", "managed-csi", "managed-csi-premium", "managed-premium")
    + ("default-rwo", "local-path", "local-storage", "hostpath", "microk8s-hostpath", "emptyDir", "emptydir", "empty-dir")
)


def _storage_class(text: str) -> str:
    _dns_subdomain(text) if text not in _SINGLE_NODE_CLASSES else None
    if text in _SINGLE_NODE_CLASSES:
        raise refusal(
            "volumes of this class are mounted by one node at a time or live on one node, so a run that moves loses its checkpoints",
            "write the class of a shared file system (ReadWriteMany), such as EFS, Filestore, FSx for Lustre, NFS or CephFS",
        )
    return text


def _access_mode(value: Any) -> Any:
    if isinstance(value, str) and value != "ReadWriteMany":
        reasons = {
            "ReadWriteOnce": "one node alone can mount the volume, so a run that moves to another node can not read its checkpoints",
            "ReadWriteOncePod": "one Pod alone can mount the volume, so two attempts can never overlap and no one else can read it",
            "ReadOnlyMany": "no checkpoint can be written to it",
        }
        short = {"RWO": "ReadWriteOnce", "RWOP": "ReadWriteOncePod", "ROX": "ReadOnlyMany"}.get(value, value)
        raise refusal(
            reasons.get(short, f"Kubernetes has no access mode {value!r}" if value != "RWX" else "Kubernetes spells it out"),
            "write ReadWriteMany" + (", with the class of a shared file system as storageClass" if short in reasons else ""),
        )
    return value


def _storage_size(text: str) -> str:
    if quantity.parse(text) < 1024**2:
        raise refusal(f"storage is counted in bytes, and this is {quantity.parse(text):f} of them", "write an amount such as 100Gi")
    return quantity.canonical(text)


DnsLabel = Annotated[str, AfterValidator(_dns_label(63))]
RunId = Annotated[str, AfterValidator(_dns_label(LONGEST_RUN_ID, "a run id, which becomes the Job's name,"))]
TeamNamespace = Annotated[str, AfterValidator(_dns_label(63)), AfterValidator(_namespace)]
DnsSubdomain = Annotated[str, AfterValidator(_dns_subdomain)]
LabelKey = Annotated[str, AfterValidator(_label_key)]
LabelValue = Annotated[str, AfterValidator(_label_value)]
LabelMap = dict[LabelKey, LabelValue]
AnnotationMap = dict[LabelKey, str]
Cpu = Annotated[str, BeforeValidator(_quantity_text), AfterValidator(_cpu)]
Memory = Annotated[str, BeforeValidator(_quantity_text), AfterValidator(_memory)]
StorageSize = Annotated[str, BeforeValidator(_quantity_text), AfterValidator(_storage_size)]
QuotaMap = dict[Annotated[str, AfterValidator(_quota_key)], Annotated[str, BeforeValidator(_quantity_text), AfterValidator(_amount)]]
DigestImage = Annotated[str, AfterValidator(digest_image)]
MountPath = Annotated[str, AfterValidator(_absolute)]
SubPath = Annotated[str, AfterValidator(_sub_path)]
KubeconfigPath = Annotated[str, AfterValidator(_kubeconfig)]
ContextName = Annotated[str, AfterValidator(_not_blank("the context", "a context of the kubeconfig; `kubectl config get-contexts` lists them"))]
GroupName = Annotated[str, AfterValidator(_group)]
EnvName = Annotated[str, AfterValidator(_env_name)]
EnvValue = str
SecretKey = Annotated[str, AfterValidator(_not_blank("the key", "a key of the Secret"))]
Argument = str
HttpUrl = Annotated[str, AfterValidator(_http_url)]
OciReference = Annotated[str, AfterValidator(_oci)]
ChartPath = Annotated[str, AfterValidator(_chart_path)]
ChartVersion = Annotated[str, AfterValidator(_version)]
Cidr = Annotated[str, AfterValidator(_cidr)]
Protocol = Literal["TCP", "UDP", "SCTP"]
PoolKind = Annotated[Literal["self-managed"], BeforeValidator(_later("self-managed", _CLOUD_POOLS, "kind of node pool"))]
RunController = Annotated[
    Literal["job"], BeforeValidator(_later("job", {"jobset": "runs by JobSet come in a later release"}, "controller"))
]
StorageKind = Annotated[
    Literal["existing-class"], BeforeValidator(_later("existing-class", _STORAGE_KINDS, "kind of checkpoint storage"))
]
SharedStorageClass = Annotated[str, AfterValidator(_storage_class)]
SharedAccessMode = Annotated[Literal["ReadWriteMany"], BeforeValidator(_access_mode)]
