"""Show the bundled model at work, or train a small one from nothing: `simuljax demo`."""
