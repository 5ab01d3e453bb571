"""The log aggregate: its facts and what follows from them."""
