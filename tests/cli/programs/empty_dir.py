"""Checkpoints in an emptyDir: they end with the Pod."""

from common import job

job(volume={"emptyDir": {}})
