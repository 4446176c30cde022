"""Grids of runs: plan, train, evaluate, summarise."""
