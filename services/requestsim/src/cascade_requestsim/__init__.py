"""Performance profile, request estimate and the serving scheduler."""
