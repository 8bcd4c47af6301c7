"""Serves the policy pack to the engine until the engine ends it."""

from rules.catalogue import POLICIES
from rules.server import serve

serve("holdfast", POLICIES)
