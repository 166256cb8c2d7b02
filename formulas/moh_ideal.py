"""Mixture-of-head attention (arXiv 2410.11842) without the heads that a token does not select: MoH's ideal form.

The same function of the same parameters as formulas/moh.py. Nothing of a head is computed for a token that does not
use it but its keys and values, which queries of other tokens read.
"""

from functools import partial

from headcount.formulas import moh

layer = partial(moh.layer, ideal=True)
