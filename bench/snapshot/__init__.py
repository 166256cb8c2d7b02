"""Count snapshots: the count of one module, its file, and the difference of two of them."""
