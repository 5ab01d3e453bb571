"""What an operator prepares before the services start: NATS users, streams, buckets."""
