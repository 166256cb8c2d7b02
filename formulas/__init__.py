"""Closed forms: ledgers of named sizes, one file for each attention or model. They import no torch."""
