"""The analytical estimate of a run: made once for a trace, a config and a model, sharpened by what was simulated."""
