"""Blocks of pages: the computed texts and numbers, one file a subject.

A block is a public function of facts. It returns a text, a number, or a mapping of such; a plot and a file are blocks
too. ``{{moa.equations}}`` in a page is the block ``equations`` of moa.py (headcount.reports.template).
"""
