"""Time, memory and kernels of compiled functions, and their distance to the device's limits."""
