"""Benchmarks: each figure with the limit that was measured in the same run."""
