"""Bucket on S3."""
