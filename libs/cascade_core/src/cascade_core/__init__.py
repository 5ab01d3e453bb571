"""Facts, folds, subjects, and the adapters for NATS JetStream and S3 that every Cascade service shares."""
