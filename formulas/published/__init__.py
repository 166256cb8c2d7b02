"""Printed tables and sentences of papers, one TOML file a table, and the judge of their numbers."""
