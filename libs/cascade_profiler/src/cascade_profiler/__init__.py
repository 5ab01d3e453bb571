"""Trace a workload on a real GPU and upload it to Cascade."""
