"""The trace aggregate: its facts and what follows from them."""
