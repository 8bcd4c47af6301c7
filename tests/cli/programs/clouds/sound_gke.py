"""GKE with its own driver and device plugin, and an operator that keeps its hands off both."""

from parts import NO_WORKLOAD, critical_pods_quota, job, node_pool, operator, tolerating

node_pool("LATEST")
critical_pods_quota()
COS = "/home/kubernetes/bin/nvidia"
operator(
    {
        "driver": {"enabled": False},
        "devicePlugin": {"enabled": False},
        "migManager": {"enabled": False},
        "toolkit": {"installDir": COS, "env": [{"name": "RUNTIME_CONFIG_SOURCE", "value": "file"}]},
        "hostPaths": {"driverInstallDir": COS},
        "validator": NO_WORKLOAD,
        **tolerating(),
    }
)
job(runtime_class=None)
