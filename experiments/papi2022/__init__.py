"""Papi et al. 2022: offline models used simultaneously."""
