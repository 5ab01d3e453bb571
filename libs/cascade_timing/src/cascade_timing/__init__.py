"""Pure step-timing model: replay a measured timeline with simulated kernel durations, and compare."""
