"""The explorer: one offline page that evaluates the ledgers of this software at any size."""
