"""`cascade backup` and `cascade restore`: the event log, what the buckets hold, and the versions that wrote them."""
