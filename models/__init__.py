"""Modules that run: one file for each attention or model, each with a plain reference of its equations."""
