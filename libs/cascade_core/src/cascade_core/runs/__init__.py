"""The run aggregate: its facts and what follows from them."""
