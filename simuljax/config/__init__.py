"""Configuration: experiments, decoding, evaluations and grids as frozen dataclasses."""
