"""What can go wrong, as the types that decide the exit code."""

from __future__ import annotations


class BadInput(Exception):
    """Configuration or input that no retry can mend (exit code 78). The message is one sentence for a person."""


class Superseded(Exception):
    """A newer generation has taken over, so nothing that this attempt writes counts any more (exit code 76)."""


class SaveFailed(Exception):
    """A checkpoint could not be saved (volume full, I/O error). Training goes on and saves at the next interval."""


class Unverified(Exception):
    """A checkpoint or result whose content is not what its manifest says."""
