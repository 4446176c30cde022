"""Ma et al. 2020: monotonic multihead attention with pre-decision for speech."""
