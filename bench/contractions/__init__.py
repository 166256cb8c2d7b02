"""The contractions of a recorded run: which operations are matrix products, of what sizes, kind and weights."""
