"""The GPU node pools of the clouds, as far as their resources tell what the nodes bring.

EKS node groups (also of aws-native and of Karpenter), GKE node pools (also in a cluster), AKS agent pools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rules.engine import Resource
from rules.placement import Alternative, Requirement
from rules.views import View

# Sources of the property names: the schemas of pulumi-aws 7.51, pulumi-gcp 10.2, azure-native 3, azure 6.
EKS_NODE_GROUPS = frozenset({"aws:eks/nodeGroup:NodeGroup", "aws-native:eks:Nodegroup"})
LAUNCH_TEMPLATES = frozenset({"aws:ec2/launchTemplate:LaunchTemplate", "aws-native:ec2:LaunchTemplate"})
_GKE_POOL = "gcp:container/nodePool:NodePool"
_GKE_CLUSTER = "gcp:container/cluster:Cluster"
_AKS_POOL = re.compile(
    r"azure-native:containerservice(/\w+)?:AgentPool"
    r"|azure:containerservice/kubernetesClusterNodePool:KubernetesClusterNodePool"
)
_AKS_CLUSTER = re.compile(r"azure-native:containerservice(/\w+)?:ManagedCluster")
_KARPENTER_POOL = re.compile(r"kubernetes:karpenter\.sh/\w+:NodePool")
_KARPENTER_CLASS = re.compile(r"kubernetes:karpenter\.k8s\.aws/\w+:EC2NodeClass")
_KARPENTER_IMAGES = {"al2023": "AL2023_x86_64_NVIDIA", "bottlerocket": "BOTTLEROCKET_x86_64_NVIDIA"}

# Families with NVIDIA GPUs; g4ad has AMD's. Source: AWS, "Amazon EC2 accelerated computing instances".
_AWS_GPU = re.compile(r"(p|gr?)\d[a-z]*(-\w+)?")
_AWS_NO_NVIDIA = frozenset({"g4ad"})
# Machine types that have their GPUs built in. Source: Google Cloud, "GPU machine types".
_GCP_GPU = re.compile(r"(a2|a3|a4|a4x|g2|g4)-")
# N-series sizes; NVv4, NVv5 with V710, NG and MI300X are AMD's. Source: Azure, "GPU - accelerated VM sizes".
_AZURE_GPU = re.compile(r"standard_n[cdv]", re.IGNORECASE)
_AZURE_NO_NVIDIA = re.compile(r"standard_nv\w*as_v4|_v710_|mi300", re.IGNORECASE)

_AKS_SPOT = "kubernetes.azure.com/scalesetpriority"
_UNSPECIFIED = "GPU_DRIVER_VERSION_UNSPECIFIED"
_INSTALLED = {"DEFAULT": "default", "LATEST": "latest"}
NO_DEVICE_PLUGIN_LABEL = "gke-no-default-nvidia-gpu-device-plugin"
NO_OPERANDS_LABEL = "nvidia.com/gpu.deploy.operands"
"""With the value "false" the operator leaves a node alone. Source: NVIDIA, GPU Operator, "Preventing
Installation of Operands on Some Nodes"."""
# Labels that a cloud or a controller adds by itself: that a pool does not declare one proves nothing.
_ADDED_BY_OTHERS = re.compile(
    r"(^|\.)(kubernetes\.io|k8s\.io|k8s\.aws|eks\.amazonaws\.com|cloud\.google\.com|kubernetes\.azure\.com"
    r"|nvidia\.com|karpenter\.sh|kubevirt\.io|topology\.\w+)/"
)
# Taints of new nodes that a CNI, a CSI driver or the cloud takes away by itself: nobody waits for long.
_UNTIL_READY = re.compile(r"not-ready$|uninitialized$|unregistered$")
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}


def is_pool_type(type_: str) -> bool:
    return (
        type_ in EKS_NODE_GROUPS
        or type_ in LAUNCH_TEMPLATES
        or type_ in (_GKE_POOL, _GKE_CLUSTER)
        or (type_.startswith("azure") and bool(_AKS_POOL.fullmatch(type_) or _AKS_CLUSTER.fullmatch(type_)))
    )


@dataclass(frozen=True)
class Taint:
    """A taint of a pool's nodes; `value` and `effect` may be unknown."""

    key: str
    value: View
    effect: str

    @property
    def text(self) -> str:
        value = self.value.peek_text()
        return f"{self.key}={value}:{self.effect}" if value else f"{self.key}:{self.effect}"


@dataclass(frozen=True)
class NodePool:
    """One pool of nodes with NVIDIA GPUs.

    `image` is the cloud's word for the node image (amiType, imageType; "": nothing tells), `cloud_cluster`
    what tells pools of different clusters apart, `hidden` the unknown values that keep the rest from being
    known. `driver` is GKE's gpuDriverVersion or AKS's driver setting, with `driver_is_default` where the pool
    says nothing and the cloud decides.
    """

    platform: str
    resource: Resource
    title: str
    image: str
    cloud_cluster: str
    cluster: str = ""
    driver: str = ""
    driver_is_default: bool = False
    default_device_plugin: bool = True
    labels: Mapping[str, View] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    hidden: tuple[View, ...] = ()
    hidden_taints: tuple[View, ...] = ()
    sharing: str = ""
    instance_types: tuple[str, ...] = ()

    @property
    def takes_operands(self) -> bool:
        label = self.labels.get(NO_OPERANDS_LABEL)
        return label is None or label.peek_text() != "false"

    def may_run(self, nodes: Sequence[Alternative], tolerations: View | None) -> bool:
        """Whether a Pod with this node selection and these tolerations (None: any) can come to these
        nodes.
        """
        if not any(all(self._may_have(need) for need in one) for one in nodes):
            return False
        return tolerations is None or not self.untolerated(tolerations)

    def _may_have(self, need: Requirement) -> bool:
        label = self.labels.get(need.key)
        if label is None:
            missing = _ADDED_BY_OTHERS.search(need.key) is None and not self.hidden
            return need.operator in ("NotIn", "DoesNotExist") or not missing
        text = label.peek_text()
        if text is None:
            return True
        answers = {"In": text in need.values, "NotIn": text not in need.values, "Exists": True}
        return answers.get(need.operator, False)

    def untolerated(self, tolerations: View) -> list[Taint]:
        """The taints that keep a Pod with these tolerations away, for certain."""
        return [
            taint
            for taint in self.taints
            if taint.effect in ("NoSchedule", "NoExecute")
            and not _UNTIL_READY.search(taint.key)
            and not any(tolerates(t, taint) for t in tolerations.peek_elements())
        ]


def tolerates(toleration: View, taint: Taint) -> bool:
    """Whether a toleration matches a taint, by Kubernetes' rules; what is unknown may match."""
    key, effect = toleration["key"], toleration["effect"]
    operator, value = toleration["operator"], toleration["value"]
    if toleration.unknown or key.unknown or operator.unknown or effect.unknown:
        return True
    if effect.peek_text() not in (None, "", taint.effect):
        return False
    how = operator.peek_text() or "Equal"
    if not key.peek_text():
        return how == "Exists"
    if key.peek_text() != taint.key:
        return False
    if how == "Exists" or value.unknown or taint.value.unknown:
        return True
    return (value.peek_text() or "") == (taint.value.peek_text() or "")


def is_nvidia_instance(instance_type: str) -> bool:
    """Whether an EC2 instance type has NVIDIA GPUs: `g6.xlarge`, `p5en.48xlarge`, `g5g.metal`."""
    family = instance_type.split(".")[0]
    return family not in _AWS_NO_NVIDIA and _AWS_GPU.fullmatch(family) is not None


def node_pools(resources: Sequence[Resource]) -> list[NodePool]:
    """Every pool with NVIDIA GPUs that the stack declares, with the cluster that it belongs to."""
    found = [pool for r in resources for pool in _pools_of(r, resources)]
    return list(_assigned(found, resources)) if found else []


def _pools_of(r: Resource, resources: Sequence[Resource]) -> Iterator[NodePool]:
    if r.type in EKS_NODE_GROUPS:
        yield from _of_eks(r, resources)
    elif r.type == _GKE_POOL:
        name = r.props["name"].peek_text() or r.name
        yield from _of_gke(r, r.title, name, r.props["nodeConfig"], _text_or_origin(r, "cluster"))
    elif r.type == _GKE_CLUSTER:
        yield from _inside_gke_cluster(r)
    elif r.type.startswith("azure"):
        yield from _of_aks(r)
    elif _KARPENTER_POOL.fullmatch(r.type):
        yield from _of_karpenter(r, resources)


def _text_or_origin(r: Resource, key: str) -> str:
    """What a pool names as its cluster: the last part of a name or id, or the cluster that it was made
    from.
    """
    text = r.props[key].peek_text()
    if text:
        return text.rsplit("/", 1)[-1]
    return next(_clusters_among(r.depends_on), "")


def _clusters_among(urns: Iterable[str]) -> Iterator[str]:
    for urn in urns:
        type_ = urn.split("::")[-2] if urn.count("::") >= 3 else ""
        if type_.split("$")[-1].endswith((":Cluster", ":ManagedCluster", ":KubernetesCluster")):
            yield urn


def _of_eks(r: Resource, resources: Sequence[Resource]) -> Iterator[NodePool]:
    props = r.props
    ami, types = props["amiType"], list(props["instanceTypes"].peek_elements())
    template = next((t for t in resources if t.type in LAUNCH_TEMPLATES and t.urn in r.depends_on), None)
    custom = False
    if template is not None:
        data = template.props["launchTemplateData"] if "native" in template.type else template.props
        custom = data["imageId"].exists
        if not types and data["instanceType"].exists:
            types = [data["instanceType"]]
    names = tuple(t.peek_text() or "" for t in types)
    image = ami.peek_text() or ("CUSTOM" if custom else "")
    gpus = [name for name in names if is_nvidia_instance(name)]
    if ami.unknown and not gpus and (not names or "" in names):
        ami.note()
    if "NVIDIA" not in image and not image.endswith("_GPU") and not gpus:
        return
    name = (props["nodeGroupName"].peek_text() or props["nodegroupName"].peek_text()) or ""
    taints = props["taints"]
    yield NodePool(
        platform="eks",
        resource=r,
        title=r.title,
        image=image,
        cloud_cluster=_text_or_origin(r, "clusterName"),
        labels=_labels(props["labels"], {"eks.amazonaws.com/nodegroup": name}),
        taints=tuple(_taints(taints)),
        hidden=(ami,) if ami.unknown else (),
        hidden_taints=tuple(_hidden_taints(taints)),
        instance_types=names,
    )


def _inside_gke_cluster(r: Resource) -> Iterator[NodePool]:
    cluster = r.props["name"].peek_text() or r.urn
    for index, pool in enumerate(r.props["nodePools"].peek_elements()):
        name = pool["name"].peek_text() or str(index)
        yield from _of_gke(r, f"{r.title}, node pool '{name}'", name, pool["nodeConfig"], cluster)
    if r.props["removeDefaultNodePool"].peek() is not True:
        title = f"{r.title}, default node pool"
        yield from _of_gke(r, title, "default-pool", r.props["nodeConfig"], cluster)


def _of_gke(r: Resource, title: str, name: str, config: View, cluster: str) -> Iterator[NodePool]:
    # An unknown configuration may be one of GPUs. A count of 0 is how a pool is told to have none.
    accelerators = [each for each in config["guestAccelerators"].elements() if each["count"].peek() != 0]
    machine = config["machineType"].peek_text() or ""
    if not accelerators and not _GCP_GPU.match(machine):
        return
    kinds = [each["type"].peek_text() or "" for each in accelerators]
    if any(kind and "nvidia" not in kind for kind in kinds):
        return
    versions = [each["gpuDriverInstallationConfig"]["gpuDriverVersion"] for each in accelerators]
    stated = [text for v in versions if (text := v.peek_text()) and text != _UNSPECIFIED]
    driver, is_default = (stated[0], False) if stated else (_default_driver(r.props), True)
    label = config["labels"][NO_DEVICE_PLUGIN_LABEL]
    image = config["imageType"]
    sharing = [each["gpuSharingConfig"]["gpuSharingStrategy"].peek_text() or "" for each in accelerators]
    # GKE adds this taint by itself to the nodes of GPU pools.
    own = Taint("nvidia.com/gpu", View("present"), "NoSchedule")
    declared = [t for t in _taints(config["taints"]) if t.key != own.key]
    yield NodePool(
        platform="gke",
        resource=r,
        title=title,
        image=(image.peek_text() or "COS_CONTAINERD").upper(),
        cloud_cluster=cluster,
        driver=driver,
        driver_is_default=is_default,
        # GKE's plugin keeps away from nodes that have the label, whatever its value.
        default_device_plugin=not label.exists or label.unknown,
        labels=_labels(
            config["labels"],
            {
                "cloud.google.com/gke-nodepool": name,
                "cloud.google.com/gke-accelerator": kinds[0] if kinds else "",
                # Google's installer keeps away from nodes with this label, which GKE's own install sets.
                "cloud.google.com/gke-gpu-driver-version": _INSTALLED.get(driver, ""),
            },
        ),
        taints=(own, *declared),
        hidden=tuple(v for v in (image, label, config["labels"], *versions) if v.unknown),
        hidden_taints=tuple(_hidden_taints(config["taints"])),
        sharing=next((each for each in sharing if each), ""),
    )


def _default_driver(pool: View) -> str:
    """What a pool gets that names no driver version: GKE installs one since 1.30.1-gke.1156000.

    Source: Google Kubernetes Engine documentation, "Run GPUs in GKE Standard node pools".
    """
    version = pool["version"].peek_text() or pool["minMasterVersion"].peek_text() or ""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if match and tuple(int(part) for part in match.groups()) < (1, 30, 1):
        return "INSTALLATION_DISABLED"
    return "DEFAULT"


def _of_aks(r: Resource) -> Iterator[NodePool]:
    if _AKS_CLUSTER.fullmatch(r.type):
        cluster = r.props["resourceName"].peek_text() or r.urn
        for index, pool in enumerate(r.props["agentPoolProfiles"].peek_elements()):
            name = pool["name"].peek_text() or str(index)
            yield from _aks_pool(r, f"{r.title}, agent pool '{name}'", name, pool, cluster)
    elif _AKS_POOL.fullmatch(r.type):
        key = "resourceName" if "native" in r.type else "kubernetesClusterId"
        name = r.props["agentPoolName"].peek_text() or r.props["name"].peek_text() or r.name
        yield from _aks_pool(r, r.title, name, r.props, _text_or_origin(r, key))


def _aks_pool(r: Resource, title: str, name: str, pool: View, cluster: str) -> Iterator[NodePool]:
    size = pool["vmSize"].text() or ""
    if (pool["osType"].peek_text() or "").lower() == "windows":
        return  # none of the table's owners runs there
    if not _AZURE_GPU.match(size) or _AZURE_NO_NVIDIA.search(size):
        return
    profile = pool["gpuProfile"]
    switch = profile["driver"] if profile.exists else pool["gpuDriver"]
    mode = profile["nvidia"]["managementMode"]
    taints = pool["nodeTaints"]
    priority = pool["scaleSetPriority"] if pool["scaleSetPriority"].exists else pool["priority"]
    spot = (priority.peek_text() or "").lower() == "spot"
    # AKS adds this taint by itself. Source: AKS documentation, "Add an Azure Spot node pool".
    own = [Taint(_AKS_SPOT, View("spot"), "NoSchedule")] if spot else []
    yield NodePool(
        platform="aks",
        resource=r,
        title=title,
        image="managed" if mode.peek_text() == "Managed" else "",
        cloud_cluster=cluster,
        driver=switch.peek_text() or "Install",
        driver_is_default=not switch.exists,
        labels=_labels(
            pool["nodeLabels"], {"kubernetes.azure.com/agentpool": name, _AKS_SPOT: "spot" if spot else ""}
        ),
        taints=(*own, *(t for t in _written_taints(taints) if not (own and t.key == _AKS_SPOT))),
        hidden=tuple(v for v in (switch, mode) if v.unknown),
        hidden_taints=(*_hidden_taints(taints), *([priority] if priority.unknown else [])),
    )


def _of_karpenter(r: Resource, resources: Sequence[Resource]) -> Iterator[NodePool]:
    spec = r.props["spec"]["template"]["spec"]
    if not any(_asks_for_nvidia(need) for need in spec["requirements"].elements()):
        return
    name = spec["nodeClassRef"]["name"].text()
    classes = [c for c in resources if c.cluster == r.cluster and _KARPENTER_CLASS.fullmatch(c.type)]
    node_class = next((c for c in classes if c.props["metadata"]["name"].peek_text() == name), None)
    if name and node_class is None:
        for each in classes:
            each.props["metadata"]["name"].value()
    taints = spec["taints"]
    # The nodes of EKS Auto Mode are Bottlerocket's, with driver, toolkit and device plugin. Source:
    # Amazon EKS user guide, "Deploy an accelerated workload" (EKS Auto Mode).
    auto = spec["nodeClassRef"]["group"].text() == "eks.amazonaws.com"
    by_class = _karpenter_image(node_class) if node_class else ""
    yield NodePool(
        platform="eks",
        resource=r,
        title=r.title,
        image="BOTTLEROCKET_x86_64_NVIDIA" if auto else by_class,
        cloud_cluster="",
        cluster=r.cluster,
        labels=_labels(
            r.props["spec"]["template"]["metadata"]["labels"],
            {"karpenter.sh/nodepool": r.props["metadata"]["name"].peek_text() or ""},
        ),
        # startupTaints go away by themselves before any Pod comes: they keep nobody out.
        taints=tuple(_taints(taints)),
        hidden_taints=tuple(_hidden_taints(taints)),
    )


def _asks_for_nvidia(need: View) -> bool:
    key, operator = need["key"].text() or "", need["operator"].peek_text()
    # EKS Auto Mode has the same labels below a name of its own.
    key = key.replace("eks.amazonaws.com/instance-", "karpenter.k8s.aws/instance-")
    if key.startswith("karpenter.k8s.aws/instance-") or key == "node.kubernetes.io/instance-type":
        operator = need["operator"].text()
        for value in need["values"].elements():
            value.value()
    values = [v.peek_text() or "" for v in need["values"].peek_elements()]
    if key.startswith("karpenter.k8s.aws/instance-gpu-"):
        if key.endswith("-name") and operator == "In":
            return any(value and not value.startswith("radeon") for value in values)
        return operator in ("Exists", "Gt", "Gte", "In") and (
            not key.endswith("manufacturer") or "nvidia" in values
        )
    if operator != "In" or not values:
        return False
    if key in ("karpenter.k8s.aws/instance-family", "node.kubernetes.io/instance-type"):
        return all(is_nvidia_instance(value) for value in values)
    return key == "karpenter.k8s.aws/instance-category" and set(values) <= {"g", "p"}


def _karpenter_image(node_class: Resource) -> str:
    """The AMI type that Karpenter takes for instances with NVIDIA GPUs, by the alias of the class, or by its
    family where it selects no image (v1beta1).

    Source: Karpenter documentation, NodeClasses, "spec.amiSelectorTerms".
    """
    spec = node_class.props["spec"]
    terms = spec["amiSelectorTerms"]
    for term in terms.elements():
        family = (term["alias"].text() or "").partition("@")[0].lower()
        if family in _KARPENTER_IMAGES:
            return _KARPENTER_IMAGES[family]
    if terms.peek_elements() or terms.unknown:
        return ""
    return _KARPENTER_IMAGES.get((spec["amiFamily"].text() or "").lower(), "")


def _labels(declared: View, more: Mapping[str, str]) -> dict[str, View]:
    found = {key: View(value) for key, value in more.items() if value}
    found.update({key: declared[key] for key in declared.peek_keys()})
    return found


def _taints(declared: View) -> Iterator[Taint]:
    """The taints of a list of objects."""
    for each in declared.peek_elements():
        key, effect = each["key"].peek_text(), each["effect"].peek_text() or ""
        if key:
            yield Taint(key, each["value"], _EFFECTS.get(effect, effect))


def _written_taints(declared: View) -> Iterator[Taint]:
    """The taints of a list of texts: `key=value:Effect`."""
    for each in declared.peek_elements():
        text = each.peek_text() or ""
        what, _, effect = text.rpartition(":")
        key, _, value = what.partition("=")
        if key:
            yield Taint(key, View(value), effect)


def _hidden_taints(declared: View) -> Iterator[View]:
    if declared.unknown:
        yield declared
    for each in declared.peek_elements():
        if each.unknown:
            yield each
        else:
            yield from (each[key] for key in ("key", "value", "effect") if each[key].unknown)


def _assigned(pools: Sequence[NodePool], resources: Sequence[Resource]) -> Iterator[NodePool]:
    """The pools with their cluster. One cluster of Kubernetes and one of the cloud are the same; of several,
    the provider that was made from the cloud's cluster, or whose kubeconfig names it, tells them apart.
    """
    clusters = {r.cluster for r in resources if r.type.startswith("kubernetes:")} or {""}
    if len(clusters) > 1:
        clusters.discard("")
    origins: dict[str, set[str]] = {}
    for r in resources:
        if r.provider_from:
            origins.setdefault(r.cluster, set()).update(r.provider_from)
    clouds = {pool.cloud_cluster for pool in pools if pool.cluster == "" and pool.cloud_cluster}
    for pool in pools:
        if pool.resource.type.startswith("kubernetes:"):
            yield pool
            continue
        made_from = set(_clusters_among(pool.resource.depends_on))
        named = [each for each in clusters if made_from & origins.get(each, set())] or [
            each for each in clusters if pool.cloud_cluster and pool.cloud_cluster in each
        ]
        if len(clusters) == 1 and (len(clouds) <= 1 or named):
            yield replace(pool, cluster=next(iter(clusters)))
        elif len(named) == 1:
            yield replace(pool, cluster=named[0])
        else:
            # By itself: what the pool alone shows is still judged.
            yield replace(pool, cluster=f"cloud cluster {pool.cloud_cluster or pool.resource.urn}")
