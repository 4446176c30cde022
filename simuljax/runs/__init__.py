"""Train an experiment into a run directory, and evaluate runs on splits of a corpus."""
