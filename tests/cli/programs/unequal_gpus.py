"""A GPU request that is not its limit."""

from common import claim, job

claim("ReadWriteMany")
job(resources={"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}})
