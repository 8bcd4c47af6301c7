"""A pool's own taint that the operands tolerate and NFD's workers do not: no node is ever found to have a GPU."""

from parts import GPU_TOLERATION, NO_WORKLOAD, TAINT, TOLERATION, job, node_group, operator

node_group("AL2023_x86_64_NVIDIA", taints=[TAINT])
operator(
    {
        "driver": {"enabled": False},
        "toolkit": {"enabled": False},
        "cdi": {"enabled": False},
        "validator": NO_WORKLOAD,
        "daemonsets": {"tolerations": [GPU_TOLERATION, TOLERATION]},
    }
)
job(TOLERATION)
