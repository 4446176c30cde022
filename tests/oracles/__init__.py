"""Slow, obvious float64 NumPy versions of the equations: loops, one example at a time."""
