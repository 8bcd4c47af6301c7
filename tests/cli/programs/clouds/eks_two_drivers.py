"""EKS AL2023 nodes, whose AMI has a driver, with an operator that installs another one: the chart's default."""

from parts import NO_WORKLOAD, TAINT, TOLERATION, job, node_group, operator, tolerating

node_group("AL2023_x86_64_NVIDIA", taints=[TAINT])
operator({"cdi": {"enabled": False}, "validator": NO_WORKLOAD, **tolerating(TOLERATION)})
job(TOLERATION)
