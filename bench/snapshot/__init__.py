"""A count that is kept: what of it is written down, its file, and how two of them differ."""
