"""Dynamic resources: what Pulumi's Kubernetes provider can not do. Each talks to one cluster by kubeconfig
and context.
"""
