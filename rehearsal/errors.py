"""The error that every part of the rehearsal raises for something a person can mend."""

from __future__ import annotations


class RehearsalError(Exception):
    """A problem in one sentence, and what to do about it in another."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem} {fix}".strip())
        self.problem = problem
        self.fix = fix
