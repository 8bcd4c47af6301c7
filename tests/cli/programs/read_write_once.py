"""A ReadWriteOnce claim for checkpoints: the Pod on another node can not mount it."""

from common import claim, job

claim("ReadWriteOnce")
job()
