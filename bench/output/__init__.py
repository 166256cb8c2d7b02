"""Print tables as text, markdown, CSV and LaTeX, and write files whole or not at all."""
