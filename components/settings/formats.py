"""Formats of single texts: Kubernetes names, labels, paths, addresses. Each refusal says what to write."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from components.settings.base import Whole, refusal
from components.settings.image import digest_image

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VERSION = re.compile(r"v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII)
# `training-<id>-r9999` must stay within the 63 characters of the label `job-name`.
LONGEST_RUN_ID = 63 - len("training-") - len("-r9999")
RESERVED_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
# What a run's container gets from us; planning/trainer_pod.py sets these, and the supervisor the generation.
JOB_ENV = (
    "HOLDFAST_RUN_ID",
    "HOLDFAST_CHECKPOINT_DIR",
    "HOLDFAST_IMAGE",
    "HOLDFAST_ATTEMPT",
    "HOLDFAST_TERMINATION_LOG",
    "HOLDFAST_GRACE_SECONDS",
    "HOLDFAST_DEADLINE_SECONDS",
    "HOLDFAST_GENERATION",
    "HOLDFAST_POD_NAME",
    "HOLDFAST_POD_UID",
    "HOLDFAST_NODE_NAME",
    "HOME",
    "TMPDIR",
)


def slug(text: str, longest: int = 63) -> str:
    """The nearest Kubernetes name; empty if nothing of the text can be kept."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9-]+", "-", plain).strip("-")[:longest].strip("-")


def matching(pattern: re.Pattern[str], reason: str, fix: str) -> AfterValidator:
    """A validator of texts of which all must fit `pattern`, with the refusal of those that do not."""

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise refusal(reason, fix)
        return text

    return AfterValidator(check)


def _dns_label(longest: int, why: str = "") -> Callable[[str], str]:
    def check(text: str) -> str:
        if not text.strip():
            raise refusal("it is blank", "write a name of lower-case letters, digits and '-'")
        if not _LABEL.fullmatch(text):
            meant = slug(text, longest)
            raise refusal(
                "it is not a Kubernetes name: lower-case letters, digits and '-', beginning and ending with a"
                " letter or digit",
                f"write {meant!r}" if meant else "write a name such as 'team-1'",
            )
        if len(text) > longest:
            raise refusal(
                f"it has {len(text)} characters, and {why or 'a Kubernetes name'} has at most {longest}",
                "shorten it",
            )
        return text

    return check


def _dns_subdomain(text: str) -> str:
    if not _SUBDOMAIN.fullmatch(text) or len(text) > 253:
        raise refusal(
            "it is not the name of a Kubernetes object: lower-case letters, digits, '-' and '.', at most 253"
            " characters",
            (f"write {slug(text, 253)!r}, or" if slug(text, 253) else "write")
            + " the name that the object really has",
        )
    return text


def _label_key(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if (
        (slash and not _SUBDOMAIN.fullmatch(prefix))
        or not _QUALIFIED.fullmatch(name)
        or len(name) > 63
        or len(prefix) > 253
    ):
        raise refusal(
            "it is not a label key: a name of at most 63 letters, digits, '-', '_' and '.', with an optional"
            " DNS prefix and '/'",
            "write a key such as pool or example.com/pool",
        )
    return text


def _label_value(text: str) -> str:
    if text and (not _QUALIFIED.fullmatch(text) or len(text) > 63):
        raise refusal(
            "it is not a label value: at most 63 letters, digits, '-', '_' and '.', beginning and ending with"
            " a letter or digit",
            "write a value such as gpu",
        )
    return text


def _absolute(text: str) -> str:
    path = f"/{text.strip('./')}"
    if not text.startswith("/"):
        raise refusal("it is not an absolute path", f"write {path if path != '/' else '/data'}")
    if ".." in text.split("/") or ":" in text:
        raise refusal("a mount path can not have '..' or ':' in it", "write a plain path such as /data")
    if not text.rstrip("/"):
        raise refusal("a mount at / hides the image", "write a path such as /data")
    return text.rstrip("/")


def _not_root(number: int) -> int:
    if number == 0:
        raise refusal(
            "0 is root, and the team's namespace refuses Pods that run as root",
            "write 1000, or another id above 0",
        )
    return number


def _sub_path(text: str) -> str:
    if text.startswith("/") or ".." in text.split("/") or not text:
        raise refusal(
            "it is not a path inside the volume", "write a relative path without '..', such as digits/2024"
        )
    return text


def _kubeconfig(text: str) -> str:
    if "\n" in text or "apiVersion" in text or text.lstrip().startswith("{"):
        raise refusal(
            "this is the content of a kubeconfig, not its path: it would go into the state and change with"
            " every certificate",
            "write the file's path, such as ${HOME}/.kube/config",
        )
    if ":" in text and text.startswith(("/", "~/")):
        raise refusal(
            "this is a list of several files, and it would not be clear which of them names the cluster",
            "write the path of one file; `kubectl config view --flatten` makes one of several",
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
            (
                "the groups of Kubernetes itself hold far more people than one team"
                if text.strip()
                else "the group is blank"
            ),
            "write the team's group as your identity provider names it, such as ml-batch-engineers",
        )
    return text


def _namespace(text: str) -> str:
    if text in RESERVED_NAMESPACES:
        raise refusal(
            "this namespace belongs to Kubernetes itself, and the team's rules would close it",
            "write a namespace of the team's own",
        )
    return text


def _env_name(text: str) -> str:
    if not _ENV_NAME.fullmatch(text):
        raise refusal(
            "it is not the name of an environment variable",
            "write letters, digits and '_', such as LEARNING_RATE",
        )
    if text in JOB_ENV:
        raise refusal("the Job sets this variable itself", "choose another name")
    return text


def _http_url(text: str) -> str:
    if text.startswith("oci://"):
        raise refusal(
            "a chart in an OCI registry has its own key", f"write oci: {text}/<chart> in place of repository"
        )
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text):
        raise refusal(
            "it is not the address of a chart repository",
            "write an address such as https://helm.ngc.nvidia.com/nvidia",
        )
    return text.rstrip("/")


def _oci(text: str) -> str:
    if not re.fullmatch(r"oci://[^\s/]+/\S+[^\s/]", text):
        raise refusal(
            "it is not a chart in an OCI registry",
            "write oci://<host>/<path>/<chart>, without the version",
        )
    if ":" in text.removeprefix("oci://").split("/", 1)[1]:
        raise refusal("the version stands in the reference", "move what follows the last ':' to version")
    return text


def _chart_path(text: str) -> str:
    if text.startswith(("/", "~")):
        raise refusal(
            "an absolute path goes into the state and differs on every machine",
            "write the path relative to the project, such as ./charts/gpu-operator",
        )
    if not text.strip():
        raise refusal(
            "the path is blank",
            "write the chart's folder relative to the project, such as ./charts/gpu-operator",
        )
    return text


def _any_chart_path(text: str) -> str:
    return text if text.startswith("/") else _chart_path(text)


def _version(text: str) -> str:
    if not _VERSION.fullmatch(text):
        raise refusal(
            "it is not one exact version, so the next update may install another chart",
            "write a version such as v26.7.0",
        )
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


DnsLabel = Annotated[str, AfterValidator(_dns_label(63))]
RunId = Annotated[str, AfterValidator(_dns_label(LONGEST_RUN_ID, "a run id, which becomes the Job's name,"))]
ReleaseName = Annotated[str, AfterValidator(_dns_label(53, "the name of a Helm release"))]
TeamNamespace = Annotated[str, AfterValidator(_dns_label(63)), AfterValidator(_namespace)]
DnsSubdomain = Annotated[str, AfterValidator(_dns_subdomain)]
LabelKey = Annotated[str, AfterValidator(_label_key)]
LabelValue = Annotated[str, AfterValidator(_label_value)]
LabelMap = dict[LabelKey, LabelValue]
AnnotationMap = dict[LabelKey, str]
DigestImage = Annotated[str, AfterValidator(digest_image)]
MountPath = Annotated[str, AfterValidator(_absolute)]
SubPath = Annotated[str, AfterValidator(_sub_path)]
KubeconfigPath = Annotated[str, AfterValidator(_kubeconfig)]
ContextName = Annotated[
    str,
    AfterValidator(
        _not_blank("the context", "a context of the kubeconfig; `kubectl config get-contexts` lists them")
    ),
]
GroupName = Annotated[str, AfterValidator(_group)]
EnvName = Annotated[str, AfterValidator(_env_name)]
EnvValue = str
PosixId = Annotated[Whole, Field(ge=0, le=2_147_483_647), AfterValidator(_not_root)]
SecretKey = Annotated[str, AfterValidator(_not_blank("the key", "a key of the Secret"))]
Argument = str
HttpUrl = Annotated[str, AfterValidator(_http_url)]
OciReference = Annotated[str, AfterValidator(_oci)]
ChartPath = Annotated[str, AfterValidator(_chart_path)]
AnyChartPath = Annotated[str, AfterValidator(_any_chart_path)]
ChartVersion = Annotated[str, AfterValidator(_version)]
Cidr = Annotated[str, AfterValidator(_cidr)]
Protocol = Literal["TCP", "UDP", "SCTP"]
