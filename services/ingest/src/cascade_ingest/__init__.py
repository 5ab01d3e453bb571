"""Watches the bucket, decides when an upload is complete, post-processes it."""
