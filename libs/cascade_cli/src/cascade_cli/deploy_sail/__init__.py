"""A workspace in a Sail account: the Sail app `cascade-<workspace>` with one sandbox that runs Cascade."""
