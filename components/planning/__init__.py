"""Pure decisions: settings in, plain values out. Nothing in here imports Pulumi or talks to a cluster."""
