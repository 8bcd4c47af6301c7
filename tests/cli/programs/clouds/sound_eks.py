"""EKS AL2023 as the table has it."""

from parts import NO_WORKLOAD, TAINT, TOLERATION, job, node_group, operator, tolerating

node_group("AL2023_x86_64_NVIDIA", taints=[TAINT])
operator(
    {
        "driver": {"enabled": False},
        "toolkit": {"enabled": False},
        "cdi": {"enabled": False},
        "validator": NO_WORKLOAD,
        **tolerating(TOLERATION),
    }
)
job(TOLERATION)
