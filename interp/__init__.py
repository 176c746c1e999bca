"""Which heads of a transformer do what, and what happens without them."""

__version__ = "0.1.0"
