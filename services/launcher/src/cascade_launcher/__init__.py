"""Turns a run into sims on a backend, stops them, notices silence."""
