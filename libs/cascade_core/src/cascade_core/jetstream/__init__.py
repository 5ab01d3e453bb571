"""EventLog on NATS JetStream."""
