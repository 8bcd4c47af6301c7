"""A Pod without a GPU that may take a place on a GPU node."""

from common import claim, job

claim("ReadWriteMany")
job(resources={}, tolerations=({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},))
