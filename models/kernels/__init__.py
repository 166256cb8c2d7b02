"""Faster implementations of the layers, in torch and in Triton."""
