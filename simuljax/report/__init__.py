"""Pages and figures of runs, evaluations and grids."""
