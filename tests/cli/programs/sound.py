"""Nothing is wrong here: the other programs are not refused for what they share with this one."""

from common import claim, job

claim("ReadWriteMany")
job(tolerations=({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},))
