"""The sim aggregate: its facts and what follows from them."""
