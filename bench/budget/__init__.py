"""``headcount budget``: search model sizes or parallel plans within limits of MACs, parameters or memory."""
