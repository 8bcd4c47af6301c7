"""Half a GPU."""

from common import claim, job

claim("ReadWriteMany")
job(resources={"requests": {"nvidia.com/gpu": "0.5"}, "limits": {"nvidia.com/gpu": "0.5"}})
