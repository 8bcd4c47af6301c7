"""Assembles the policy pack; `PolicyPack` serves it to the engine until the engine ends it."""

from pulumi_policy import EnforcementLevel, PolicyPack
from rules.catalogue import POLICIES

PolicyPack(name="holdfast", policies=list(POLICIES), enforcement_level=EnforcementLevel.MANDATORY)
