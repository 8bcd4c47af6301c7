"""Does the cluster take JobSets? A snapshot, and its pure judgement.

A ready Deployment proves nothing: the webhook refuses for some seconds after it, until its certificate is in
the webhook's configuration and its Pod in the Service. What proves it is a JobSet that the API server would
take (a dry run), with the defaults in it that only the webhook sets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from components.cluster_resources.access import Cluster, Json, Reader, items
from components.cluster_resources.errors import ChangedMeanwhile, ClusterProblem, ClusterUnreachable
from components.cluster_resources.gpu_snapshot import Deployment, Pod, snapshot_of
from components.cluster_resources.waiting import Verdict

API = "/apis/jobset.x-k8s.io/v1alpha2"
PROBE_NAME = "holdfast-probe"
MESSAGE_LENGTH = 240


@dataclass(frozen=True)
class JobSetSnapshot:
    """What the cluster shows of JobSet."""

    api: bool
    """The API server knows the kind."""
    deployments: tuple[Deployment, ...] = ()
    """Deployments of the controller's namespace; read only where the stack installs it."""
    pods: tuple[Pod, ...] = ()
    refusal: str | None = None
    """Why a JobSet is not taken now: what passes by waiting. None: it is taken, or was not tried."""
    rejection: str | None = None
    """Why a JobSet is not taken, where waiting does not help."""


def observe(cluster: Cluster, namespace: str, installed: bool) -> JobSetSnapshot:
    """Look at a cluster and try a JobSet. Raises `ClusterProblem` if it can not be read."""
    snapshot = look(cluster, namespace, installed)
    if not snapshot.api:
        return snapshot
    refusal, rejection = _try(cluster, namespace)
    return replace(snapshot, refusal=refusal, rejection=rejection)


def look(cluster: Reader, namespace: str, installed: bool) -> JobSetSnapshot:
    """What a cluster shows, with nothing tried."""
    listed = cluster.get(API) or {}
    api = any(resource.get("name") == "jobsets" for resource in listed.get("resources") or [])
    deployments: tuple[Deployment, ...] = ()
    pods: tuple[Pod, ...] = ()
    if installed:
        found = snapshot_of(
            deployments=items(cluster, f"/apis/apps/v1/namespaces/{namespace}/deployments"),
            pods=items(cluster, f"/api/v1/namespaces/{namespace}/pods"),
            events=items(cluster, f"/api/v1/namespaces/{namespace}/events", fieldSelector="type=Warning"),
        )
        deployments, pods = tuple(found.deployments.values()), found.pods
    return JobSetSnapshot(api, deployments, pods)


def judge(snapshot: JobSetSnapshot, namespace: str, installed: bool) -> Verdict:
    """The verdict over one snapshot."""
    waiting: list[str] = []
    faults: list[str] = []
    if not snapshot.api and installed:
        waiting.append("The API server does not know JobSets yet.")
    elif not snapshot.api:
        faults.append(
            "The cluster has no JobSets (jobset.x-k8s.io/v1alpha2), although holdfast:jobSet.install ="
            " existing says so. Install JobSet, or write install: auto."
        )
    if installed and not snapshot.deployments:
        waiting.append(f"There is no Deployment in {namespace} yet.")
    for deployment in snapshot.deployments:
        if deployment.available < deployment.wanted:
            told = "; ".join(f"{pod.name} {pod.problem}" for pod in snapshot.pods if pod.problem)
            waiting.append(
                f"Deployment {deployment.name} has {deployment.available} of {deployment.wanted} Pods"
                f" available{f' ({told})' if told else ''}."
            )
    if snapshot.refusal:
        waiting.append(f"JobSet's webhook does not answer: {snapshot.refusal}.")
    if snapshot.rejection:
        faults.append(f"The cluster does not take a JobSet: {snapshot.rejection}.")
    return Verdict(tuple(waiting), tuple(faults))


def probe(namespace: str) -> Json:
    """The smallest JobSet. It is never stored."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "probe", "image": "probe"}]}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": PROBE_NAME, "namespace": namespace},
        "spec": {
            "replicatedJobs": [
                {"name": "probe", "replicas": 1, "template": {"spec": {"template": {"spec": pod}}}}
            ]
        },
    }


def _try(cluster: Cluster, namespace: str) -> tuple[str | None, str | None]:
    try:
        taken = cluster.create(f"{API}/namespaces/{namespace}/jobsets", probe(namespace), dryRun="All")
    except ChangedMeanwhile:
        return None, None  # it exists: admission, which is what is tried, let it through
    except ClusterUnreachable as error:
        return _clip(error.answer or str(error)), None
    except ClusterProblem as error:
        return None, _clip(error.answer or str(error))
    if taken is None:
        return None, f"namespace {namespace} does not exist; correct holdfast:jobSet.namespace"
    network = (taken.get("spec") or {}).get("network") or {}
    if network.get("enableDNSHostnames") is None:
        return "a JobSet was taken without it", None
    return None, None


def _clip(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= MESSAGE_LENGTH else line[: MESSAGE_LENGTH - 1] + "…"
