"""The stand-in GPU Operator of the rehearsal cluster: a controller, a real device plugin and their helpers.

It is not NVIDIA's GPU Operator. It makes the objects that NVIDIA's controller makes from the same values, so
that a mistake in them shows on a cluster without GPUs as it would on one with GPUs.

Modules import each other relatively: in the image this package is `gpu_operator`, in the checkout it is
`rehearsal.gpu_operator`.
"""
