"""Targets: how the user names one, and the separate process that builds it from code or a configuration."""
