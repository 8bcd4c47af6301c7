"""`./holdfast accept`: faults on a real cluster, the raw facts of each, and what they prove."""
