"""Bottlerocket, which brings everything: nodes and a Job."""

from parts import TAINT, TOLERATION, job, node_group

node_group("BOTTLEROCKET_x86_64_NVIDIA", taints=[TAINT])
job(TOLERATION, runtime_class=None)
