"""The program: settings (validated configuration), planning (pure decisions) and the components themselves."""
