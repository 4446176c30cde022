"""Build, train, stream and score a small model from nothing: `simuljax demo`."""
