"""Where sims run: one small protocol, four platforms."""
