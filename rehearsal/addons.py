"""What every real cluster has beside its control plane: cluster DNS and a StorageClass. And one permission more."""

from __future__ import annotations

from rehearsal.addresses import Addresses
from rehearsal.api import apply, core
from rehearsal.node import POOL_LABEL
from rehearsal.provisioner import BOUNDED_CLASS, STORAGE_CLASS

_STORAGE = f"""
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: {STORAGE_CLASS}
provisioner: holdfast.dev/rehearsal
reclaimPolicy: Retain
volumeBindingMode: Immediate
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: {BOUNDED_CLASS}
provisioner: holdfast.dev/rehearsal
reclaimPolicy: Delete
volumeBindingMode: Immediate
"""

# The Node authorizer lets a kubelet read a claim once it has heard of the Pod, which can be after the kubelet has
# (kubernetes/kubernetes#49880: such denials are expected). A claim, unlike a Secret, is not asked for again until the Pod's next
# try 12 s later: seen once in 24 restarts while two cores did the work of three nodes and their control plane.
_CLAIMS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: rehearsal:claims-of-pods}
rules:
  - {apiGroups: [""], resources: [persistentvolumeclaims, persistentvolumes], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: rehearsal:claims-of-pods}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: rehearsal:claims-of-pods}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:nodes}]
"""

_DNS = """
apiVersion: v1
kind: ServiceAccount
metadata: {{name: coredns, namespace: kube-system}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: system:coredns}}
rules:
  - {{apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}}
  - {{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: system:coredns}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:coredns}}
subjects: [{{kind: ServiceAccount, name: coredns, namespace: kube-system}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: coredns, namespace: kube-system}}
data:
  Corefile: |
    .:53 {{
        errors
        health {{
            lameduck 1s
        }}
        ready
        kubernetes cluster.local in-addr.arpa ip6.arpa {{
            pods insecure
            fallthrough in-addr.arpa ip6.arpa
        }}
        cache 30
        reload
    }}
---
apiVersion: v1
kind: Service
metadata:
  name: kube-dns
  namespace: kube-system
  labels: {{k8s-app: kube-dns}}
spec:
  clusterIP: {dns}
  selector: {{k8s-app: kube-dns}}
  ports:
    - {{name: dns, port: 53, protocol: UDP}}
    - {{name: dns-tcp, port: 53, protocol: TCP}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: coredns
  namespace: kube-system
  labels: {{k8s-app: kube-dns}}
spec:
  replicas: 1
  selector: {{matchLabels: {{k8s-app: kube-dns}}}}
  template:
    metadata: {{labels: {{k8s-app: kube-dns}}}}
    spec:
      priorityClassName: system-cluster-critical
      serviceAccountName: coredns
      nodeSelector: {{{pool_label}: system}}
      dnsPolicy: Default
      containers:
        - name: coredns
          image: {image}
          imagePullPolicy: Never
          args: [-conf, /etc/coredns/Corefile]
          resources: {{requests: {{cpu: 50m, memory: 40Mi}}, limits: {{memory: 170Mi}}}}
          readinessProbe: {{httpGet: {{path: /ready, port: 8181}}, periodSeconds: 2}}
          securityContext:
            allowPrivilegeEscalation: false
            capabilities: {{add: [NET_BIND_SERVICE], drop: [ALL]}}
            readOnlyRootFilesystem: true
          volumeMounts: [{{name: config, mountPath: /etc/coredns, readOnly: true}}]
      volumes: [{{name: config, configMap: {{name: coredns}}}}]
"""


def install(plan: Addresses, coredns_image: str) -> None:
    apply(_STORAGE)
    apply(_CLAIMS)
    apply(_DNS.format(dns=plan.dns_service, pool_label=POOL_LABEL, image=coredns_image))


def dns_problem() -> str:
    """Empty when a CoreDNS Pod is ready; else a few words."""
    pods = core().list_namespaced_pod("kube-system", label_selector="k8s-app=kube-dns").items
    for pod in pods:
        if any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or []):
            return ""
    return "cluster DNS"
