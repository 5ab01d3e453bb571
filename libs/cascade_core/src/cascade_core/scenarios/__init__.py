"""The scenario aggregate: its facts and what follows from them."""
