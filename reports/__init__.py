"""The report: pages as markdown with markers, the blocks that fill them, plots, and stored measurements."""
