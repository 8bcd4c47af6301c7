"""The reference program: classifies handwritten digits, on real data, with the same code on CPU and GPU."""
