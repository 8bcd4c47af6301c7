"""GKE's own driver on nodes with the label that turns its device plugin off: they end without a driver."""

from parts import NO_WORKLOAD, job, node_pool, operator, tolerating

node_pool("LATEST", no_default_plugin=True)
COS = "/home/kubernetes/bin/nvidia"
operator(
    {
        "driver": {"enabled": False},
        "toolkit": {"installDir": COS, "env": [{"name": "RUNTIME_CONFIG_SOURCE", "value": "file"}]},
        "hostPaths": {"driverInstallDir": COS},
        "validator": NO_WORKLOAD,
        **tolerating(),
    }
)
job()
