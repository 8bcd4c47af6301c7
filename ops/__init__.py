"""Day two: one module per verb. Reads clusters and runs the engine; never declares a resource."""
