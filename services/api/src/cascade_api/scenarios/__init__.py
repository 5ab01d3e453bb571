"""Serving scenarios at the gateway: which finished sim they build on, and how their answers are waited for."""
