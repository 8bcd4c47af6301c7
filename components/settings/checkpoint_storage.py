"""Where a team's checkpoints live. They must outlive the Pod and its node, so only shared storage will do."""

from __future__ import annotations

from components.settings.amounts import StorageSize
from components.settings.base import Flag, Settings
from components.settings.choices import SharedAccessMode, SharedStorageClass, StorageKind
from components.settings.formats import DnsSubdomain


class CheckpointStorageSettings(Settings):
    """A claim on an existing StorageClass whose volumes several nodes can mount at once."""

    kind: StorageKind = "existing-class"
    storage_class: SharedStorageClass
    size: StorageSize = "100Gi"
    claim_name: DnsSubdomain = "training-checkpoints"
    access_mode: SharedAccessMode = "ReadWriteMany"
    disposable: Flag = False
    """True: a destroy of the team deletes its checkpoints too. False: claim and namespace are kept."""
