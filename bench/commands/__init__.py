"""Commands: one file each, which parses its own options, makes its tables and states its result in one sentence."""
