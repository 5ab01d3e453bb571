"""Turns log chunks into kernel facts and progress."""
