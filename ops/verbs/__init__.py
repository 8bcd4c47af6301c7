"""One module per verb. Each has one function that does the verb's work and returns its exit code."""
