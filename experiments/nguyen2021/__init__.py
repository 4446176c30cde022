"""Nguyen et al. 2021: (k, s, N) with offline models."""
