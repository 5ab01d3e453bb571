"""The kernel aggregate: its facts and what follows from them."""
