"""Least and expected times of kernels on a card: what a call launches, and how fast each kind of kernel runs."""
