"""What runs inside the training Pod: the recovery library, its supervisor, and the reference program."""
