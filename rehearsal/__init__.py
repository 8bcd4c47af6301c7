"""The rehearsal cluster: a real Kubernetes on one Linux machine, without a GPU, Docker or an image registry."""
