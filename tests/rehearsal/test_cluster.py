"""The rehearsal is a real cluster: Pod network, Services, DNS, exec, logs, the nvidia handler and a shared volume."""

from __future__ import annotations

import shlex

import pytest

from rehearsal import cluster
from rehearsal.api import apply, core
from tests.rehearsal.helpers import wait_for

NAMESPACE = "cluster-test"
MANIFESTS = """
apiVersion: v1
kind: Namespace
metadata: {{name: {namespace}}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {{name: cluster-test}}
handler: nvidia
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: shared, namespace: {namespace}}}
spec:
  storageClassName: rehearsal-rwx
  accessModes: [ReadWriteMany]
  resources: {{requests: {{storage: 1Gi}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: {namespace}}}
spec:
  selector: {{app: gpu-1}}
  ports: [{{port: 80, targetPort: 8000}}]
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {node}, namespace: {namespace}, labels: {{app: {node}}}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  tolerations: [{{operator: Exists}}]
  runtimeClassName: cluster-test
  terminationGracePeriodSeconds: 1
  securityContext: {{runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000}}
  containers:
    - name: web
      image: {image}
      imagePullPolicy: Never
      command: [python3, -m, http.server, "8000"]
      volumeMounts: [{{name: shared, mountPath: /shared}}]
  volumes: [{{name: shared, persistentVolumeClaim: {{claimName: shared}}}}]
"""
FETCH = "import urllib.request; print(urllib.request.urlopen('http://{host}/', timeout=5).status)"


@pytest.fixture(scope="module")
def pods(kubectl):
    apply(MANIFESTS.format(namespace=NAMESPACE))
    image = cluster.images()["gpu-operator"]
    for node in ("gpu-0", "gpu-1"):
        apply(POD.format(node=node, namespace=NAMESPACE, image=image))

    def ready() -> bool:
        found = core().list_namespaced_pod(NAMESPACE).items
        return len(found) == 2 and all(
            any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or []) for pod in found
        )

    wait_for("both Pods run", ready)
    yield
    kubectl("delete", "namespace", NAMESPACE)
    kubectl("delete", "runtimeclass", "cluster-test")


def execute(kubectl, pod: str, *command: str) -> str:
    return kubectl("exec", "--namespace", NAMESPACE, pod, "--", *command).strip()


def tries(kubectl, pod: str, *command: str) -> str:
    """The same where the command may fail: what it printed, if it ended well."""
    return execute(kubectl, pod, "sh", "-c", f"{shlex.join(command)} 2>/dev/null || true")


def test_a_pod_reaches_a_pod_of_another_node_by_the_service_s_name_and_its_log_tells_it(pods, kubectl):
    fetch = FETCH.format(host=f"web.{NAMESPACE}.svc.cluster.local")
    # Endpoints reach kube-proxy and DNS some seconds after a Pod is ready, as in every cluster.
    wait_for("the Service answers", lambda: tries(kubectl, "gpu-0", "python3", "-c", fetch) == "200", seconds=30)
    client = core().read_namespaced_pod("gpu-0", NAMESPACE).status.pod_ip
    assert client in kubectl("logs", "--namespace", NAMESPACE, "gpu-1"), "the source address is the Pod's own"


def test_a_pod_reaches_the_api_server_through_its_service(pods, kubectl):
    connect = "import socket; socket.create_connection(('kubernetes.default', 443), 5); print('connected')"
    assert execute(kubectl, "gpu-1", "python3", "-c", connect) == "connected"


def test_a_file_that_one_node_writes_as_the_run_s_user_is_read_on_the_other(pods, kubectl):
    execute(kubectl, "gpu-0", "sh", "-c", "echo kept > /shared/file")
    assert execute(kubectl, "gpu-1", "cat", "/shared/file") == "kept"
    assert execute(kubectl, "gpu-1", "stat", "-c", "%u:%g", "/shared/file") == "1000:1000"


def test_a_claim_that_is_made_again_finds_its_files_and_another_claim_does_not(pods, kubectl):
    execute(kubectl, "gpu-0", "sh", "-c", "echo kept > /shared/file")
    kubectl("delete", "pod", "--namespace", NAMESPACE, "gpu-0", "gpu-1")
    kubectl("delete", "pvc", "--namespace", NAMESPACE, "shared")
    apply(MANIFESTS.format(namespace=NAMESPACE))
    image = cluster.images()["gpu-operator"]
    apply(POD.format(node="gpu-1", namespace=NAMESPACE, image=image))
    wait_for(
        "the Pod runs again",
        lambda: core().read_namespaced_pod("gpu-1", NAMESPACE).status.phase == "Running",
    )
    assert execute(kubectl, "gpu-1", "cat", "/shared/file") == "kept"
    volumes = [v.spec.local.path for v in core().list_persistent_volume().items]
    assert len(volumes) == len(set(volumes))
