"""What can go wrong, as the types that decide the exit code."""

from __future__ import annotations


class BadInput(Exception):
    """Configuration or input that no retry can mend (exit code 78), in one sentence for a person."""


class Superseded(Exception):
    """A newer generation has taken over: what this attempt writes counts no more (exit code 76)."""


class SaveFailed(Exception):
    """A checkpoint could not be saved (volume full, I/O error). Training goes on and tries again."""


class Unverified(Exception):
    """A checkpoint or result whose content is not what its manifest says."""
