"""Plots of the report, one file a subject, each drawn for light and dark pages."""
