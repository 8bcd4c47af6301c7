"""From the planners' manifests to the arguments of Pulumi's typed Kubernetes resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
STABLE_MANAGER = {"pulumi.com/patchFieldManager": "holdfast"}
"""One name for our writes to objects that outlive a destroy.

The provider always upserts with server-side apply (pulumi-kubernetes, pkg/await/await.go, `Creation`), so a
later `up` takes a kept namespace or claim over. Its own manager names are random per resource (provider.go,
`fieldManagerName`): the kept object's old one would then stand in the way of every changed label as a
conflict.
"""


def arguments(manifest: Mapping[str, Any], annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Keyword arguments of the manifest's resource class, with `annotations` added to its own.

    Only the top-level keys get Python's spelling: the SDK passes nested dict keys on as they are, camelCase
    included.
    """
    args = {
        _snake(key): value for key, value in manifest.items() if key not in ("apiVersion", "kind", "status")
    }
    if annotations:
        metadata = dict(args["metadata"])
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
        args["metadata"] = metadata
    return args


def _snake(key: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", key).lower()
