"""Analytical estimate of kernel cycles from SASS traces and a GPU config."""
