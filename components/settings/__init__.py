"""Stack configuration as validated, frozen models: one file per concern. Entry: `loader`."""
