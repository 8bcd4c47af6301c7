"""The Debian packages that image building uses on the host; preflight and installer read this list."""

from __future__ import annotations

DEBIAN_PACKAGES: tuple[str, ...] = (
    "buildah",  # builds a Containerfile without a daemon, in a chroot
    "mmdebstrap",  # makes the base root file system from Debian packages
    "debian-archive-keyring",  # the keys that sign them, which another distribution lacks
    "util-linux",  # unshare: mounts made during a build end with it
)
