"""The rules of the pack: one topic per module, each a pure check, exported as a policy value."""
