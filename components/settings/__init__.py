"""Stack configuration as validated, frozen models: one file per concern. Read it with `loader.load_settings`."""
