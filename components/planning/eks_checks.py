"""Checks of pools on EKS: what EKS, EC2, the kubelet or the owners of the nodes' layers would not have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from components.planning import eks_arguments
from components.planning.eks_pool import gpus_per_node
from components.planning.instance_types import InstanceType, as_of, instance_types, unusable
from components.settings.consistency import Told, told
from components.settings.draft import Draft
from components.settings.eks_pool import EksSettings
from components.settings.explain import closest
from components.settings.node_pool import EksNodePoolSettings
from components.settings.stack import StackSettings
from components.settings.substitution import Path

# EC2 allows 50 tags of one resource; six are ours.
MOST_TAGS = 44
_OUR_TAGS = ("app.kubernetes.io/", "holdfast.dev/", "kubernetes.io/cluster/", "eks:")
# What the kubelet takes in the system's label domains (kubernetes/kubernetes, cmd/kubelet/app/options,
# ValidateKubeletFlags).
_KUBELET_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")


def problems(draft: Draft) -> Iterator[Told]:
    """Every problem of the pools on EKS."""
    for index, pool in draft.node_pools.items():
        if not isinstance(pool, EksNodePoolSettings):
            continue
        path: Path = ("nodePools", index)
        yield from _labels(path, pool)
        yield from _instances(path, pool)
        here: Path = (*path, "eks")
        yield from _image(here, pool.eks)
        yield from _capacity(here, pool.eks)
        yield from _network(here, pool.eks)
        yield from _tags(here, pool.eks)
        yield from eks_arguments.problems(here, pool.eks)


def warnings(settings: StackSettings) -> Iterator[str]:
    """What works, and what a person should know about it."""
    for pool in settings.node_pools:
        if isinstance(pool, EksNodePoolSettings):
            for sentence in _advice(pool):
                yield f'nodePools "{pool.name}": {sentence}'


def _advice(pool: EksNodePoolSettings) -> Iterator[str]:
    eks, table = pool.eks, instance_types()
    one_zone = [
        name
        for name, given in (
            ("placementGroup", eks.placement_group),
            ("capacity: capacity-block", eks.capacity == "capacity-block"),
        )
        if given
    ]
    if one_zone and len(eks.subnet_ids) > 1:
        yield (
            f"with {' and '.join(one_zone)} its nodes can start in one zone only, and eks.subnetIds has"
            f" {len(eks.subnet_ids)} subnets. Nodes that are tried in another zone fail."
        )
    kinds = sorted({table[name].gpu for name in eks.instance_types if name in table})
    if len(kinds) > 1:
        yield (
            f"its instance types have different GPUs ({', '.join(kinds)}). A run that is moved may find less"
            " memory than it began with."
        )
    if eks.custom:
        labels = [f"{key}={value}" for key, value in pool.labels.items()]
        missing = [text for text in (*labels, str(pool.taint)) if text not in (eks.user_data or "")]
        if missing:
            # aws/containers-roadmap#1962.
            yield (
                f"its userData does not hand {' and '.join(missing)} to the kubelet (--node-labels,"
                " --register-with-taints). EKS adds them about half a minute after a node has joined, and until then"
                " Pods of others may be sent there."
            )


def _labels(path: Path, pool: EksNodePoolSettings) -> Iterator[Told]:
    for key, value in pool.labels.items():
        domain = key.rpartition("/")[0]
        if _under(domain, ("eks.amazonaws.com",)):
            yield told((*path, "labels", key), value, "EKS sets such labels itself", "choose another key")
        elif _under(domain, ("kubernetes.io", "k8s.io")) and not _under(domain, _KUBELET_DOMAINS):
            yield told(
                (*path, "labels", key),
                value,
                "a kubelet that is told to register with it does not start, so the nodes would never join",
                "choose another key, such as one in your own domain",
            )


def _under(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


def _instances(path: Path, pool: EksNodePoolSettings) -> Iterator[Told]:
    eks, table = pool.eks, instance_types()
    here: Path = (*path, "eks", "instanceTypes")
    found: list[Told] = []
    for number, name in enumerate(eks.instance_types):
        if name in eks.instance_types[:number]:
            found.append(told((*here, number), name, "the type is in the list already", "remove it"))
        elif name in table:
            found += _architecture((*here, number), name, table[name], eks)
        elif eks.gpus_per_instance is None:
            found.append(_unknown((*here, number), name, table))
    yield from found
    known = [name for name in eks.instance_types if name in table]
    if eks.gpus_per_instance is not None and len(known) == len(eks.instance_types):
        yield told(
            (*path, "eks", "gpusPerInstance"),
            eks.gpus_per_instance,
            "the table of instance types knows all of the pool's",
            "remove it",
        )
    if found:
        return
    gpus = gpus_per_node(eks)
    if gpus is None:
        counts = {
            name: table[name].gpus if name in table else eks.gpus_per_instance for name in eks.instance_types
        }
        listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
        yield told(
            here,
            None,
            f"all nodes of a pool have the same number of GPUs, and {listed}",
            "keep the types of one number, and make a pool of the others",
        )
    elif pool.gpus_per_node not in (None, gpus):
        yield told(
            (*path, "gpusPerNode"),
            pool.gpus_per_node,
            f"an instance of this pool has {gpus}",
            f"write {gpus}, or remove it: it follows from eks.instanceTypes",
        )


def _unknown(path: Path, name: str, table: Mapping[str, InstanceType]) -> Told:
    reason = unusable(name)
    family = name.partition(".")[0]
    sizes = [other for other in table if other.partition(".")[0] == family]
    if reason:
        return told(
            path, name, reason, "write a type with whole NVIDIA GPUs, such as g6.12xlarge or p5.48xlarge"
        )
    if sizes:
        return told(path, name, "there is no such size with GPUs", f"write one of {', '.join(sizes)}")
    meant = closest(name, table)
    return told(
        path,
        name,
        f"how many NVIDIA GPUs it has, if any, is not known here (table of {as_of()})",
        (f"did you mean {meant}? Otherwise " if meant else "")
        + "write a type with GPUs, or add eks.gpusPerInstance as AWS' documentation has it",
    )


def _architecture(path: Path, name: str, has: InstanceType, eks: EksSettings) -> Iterator[Told]:
    first = next((instance_types()[other] for other in eks.instance_types if other in instance_types()), has)
    if eks.architecture and has.architecture != eks.architecture:
        images = {"x86_64": "x86_64", "arm64": "ARM_64"}
        other = eks.ami_type.replace(images[eks.architecture], images[has.architecture])
        yield told(
            path,
            name,
            f"it is an {has.architecture} instance, and {eks.ami_type} is an image for {eks.architecture}",
            f"write amiType: {other}, or an {eks.architecture} type",
        )
    elif eks.custom and has.architecture != first.architecture:
        yield told(
            path,
            name,
            f"it is an {has.architecture} instance, and eks.imageId is one image, for {first.architecture} by the"
            " first type",
            "make a pool for each architecture",
        )


def _image(path: Path, eks: EksSettings) -> Iterator[Told]:
    example = "1.52.0-a1b2c3d4" if eks.bottlerocket else "1.34.2-20261120"
    if eks.custom and eks.release_version:
        yield told(
            (*path, "releaseVersion"),
            eks.release_version,
            "an image of your own has none: eks.imageId pins it",
            "remove it",
        )
    elif not eks.custom and eks.release_version is None:
        yield told(
            (*path, "releaseVersion"),
            None,
            "it is missing, so EKS would take the newest image, and with it another driver, whenever the pool is made"
            " or updated",
            f"add releaseVersion, such as {example}; the changelog of"
            f" {'Bottlerocket' if eks.bottlerocket else 'amazon-eks-ami'} lists them",
        )
    elif eks.release_version and not eks.pinned_to.fullmatch(eks.release_version):
        yield told(
            (*path, "releaseVersion"),
            eks.release_version,
            f"releases of {eks.ami_type} look different",
            f"write one such as {example}",
        )
    elif eks.release_version and not eks.bottlerocket:
        version = eks.node_group_args.get("version")
        if isinstance(version, str) and not eks.release_version.startswith(f"{version}."):
            yield told(
                (*path, "nodeGroupArgs", "version"),
                version,
                f"the image {eks.release_version} is of Kubernetes {eks.release_version.rsplit('.', 1)[0]}",
                "remove it: the release says it",
            )
    for key, given, what in (
        ("imageId", eks.image_id, "the id of an Ubuntu image for EKS without an NVIDIA driver"),
        (
            "userData",
            eks.user_data,
            "a script that joins the cluster, such as one that calls /etc/eks/bootstrap.sh",
        ),
    ):
        if eks.custom and not given:
            yield told(
                (*path, key), None, "it is missing, and amiType: CUSTOM needs it", f"add {key}: {what}"
            )
    if eks.image_id and not eks.custom:
        yield told(
            (*path, "imageId"),
            eks.image_id,
            f"the image is {eks.ami_type} of EKS, and a second one would decide the owner of the driver anew",
            "remove it, or write amiType: CUSTOM for an Ubuntu image without a driver",
        )
    yield from _user_data((*path, "userData"), eks)


def _user_data(path: Path, eks: EksSettings) -> Iterator[Told]:
    text = (eks.user_data or "").lstrip()
    mime = text.startswith(("MIME-Version:", "Content-Type:"))
    if not text:
        return
    if eks.custom and not (mime or text.startswith(("#!", "#cloud-config"))):
        yield told(path, None, "it is neither a script nor cloud-init's", "begin it with #!/bin/bash")
    elif eks.ami_type.startswith("AL2023") and not mime:
        # EKS user guide, Customize managed nodes with launch templates, Amazon EC2 user data.
        yield told(
            path,
            None,
            "EKS merges user data into its own as MIME parts, and this is none",
            'begin it with MIME-Version: 1.0 and a line Content-Type: multipart/mixed; boundary="//"',
        )
    elif eks.bottlerocket and (text.startswith("#!") or not text.startswith(("[", "#", "settings."))):
        yield told(
            path, None, "Bottlerocket reads settings in TOML", "write tables such as [settings.kernel]"
        )
    elif eks.bottlerocket and "kubelet-device-plugins" in text:
        yield told(
            path,
            None,
            "it changes Bottlerocket's own device plugin, and what one nvidia.com/gpu is follows from the instance type",
            "remove settings.kubelet-device-plugins",
        )


def _capacity(path: Path, eks: EksSettings) -> Iterator[Told]:
    if eks.capacity == "capacity-block" and eks.capacity_reservation_id is None:
        yield told(
            (*path, "capacityReservationId"),
            None,
            "it is missing, and a capacity block is a reservation",
            "add capacityReservationId, such as cr-0a1b2c3d4e5f60718, as `aws ec2 describe-capacity-reservations`"
            " shows it",
        )
    if eks.capacity == "spot" and eks.capacity_reservation_id:
        yield told(
            (*path, "capacityReservationId"),
            eks.capacity_reservation_id,
            "Spot instances are never taken from a reservation",
            "remove it, or write capacity: on-demand, or capacity-block",
        )
    elif eks.capacity_reservation_id and len(eks.instance_types) > 1:
        yield told(
            (*path, "instanceTypes"),
            None,
            f"a reservation is of one instance type, and these are {len(eks.instance_types)}",
            "write the reservation's type alone",
        )


def _network(path: Path, eks: EksSettings) -> Iterator[Told]:
    given = "networkInterfaces" in eks.launch_template_args
    if given and (eks.efa or eks.security_group_ids):
        name = "efa" if eks.efa else "securityGroupIds"
        yield told(
            (*path, "launchTemplateArgs", "networkInterfaces"),
            None,
            f"the pool's setting eks.{name} makes them",
            f"remove it, or remove {name} and write the interfaces with their securityGroups yourself",
        )
    if not eks.efa:
        return
    if not eks.security_group_ids:
        yield told(
            (*path, "securityGroupIds"),
            None,
            "it is missing, and with interfaces of the pool's own EKS adds no security group",
            "add the cluster's security group, or one that lets the nodes reach the cluster and all traffic between"
            " them in and out",
        )
    cards = {
        name: instance_types()[name].efa_cards for name in eks.instance_types if name in instance_types()
    }
    without = [name for name in eks.instance_types if not cards.get(name)]
    if without:
        yield told(
            (*path, "efa"),
            True,
            f"{' and '.join(without)} can have no Elastic Fabric Adapter, or where is not known here"
            f" (table of {as_of()})",
            "remove it, or write a larger instance type",
        )
    elif len(set(cards.values())) > 1:
        listed = ", ".join(f"{name} has {len(places)}" for name, places in cards.items())
        yield told(
            (*path, "efa"),
            True,
            f"the launch template has the same adapters for all types, and {listed} places for them",
            "make a pool for each number",
        )


def _tags(path: Path, eks: EksSettings) -> Iterator[Told]:
    if len(eks.tags) > MOST_TAGS:
        yield told(
            (*path, "tags"),
            None,
            f"they are {len(eks.tags)}, and EC2 leaves {MOST_TAGS} beside ours",
            "write fewer",
        )
    for key, value in eks.tags.items():
        if key.startswith(_OUR_TAGS):
            yield told(
                (*path, "tags", key), value, "the stack or EKS sets this tag itself", "choose another key"
            )
