"""The HTTP API's bodies as this client reads and writes them.

The services define their own; the two meet only on the wire. A test compares every model here with the OpenAPI
document that the app serves, so that neither side can change alone. A newer app's additional fields are ignored.
"""
