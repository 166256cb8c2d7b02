"""Multi-head latent attention with its up-projections absorbed: a step reads the stored latents as they are.

q_i k_i^T = (q^C_i W^UK_i) c^KV^T + q^R_i k^R^T, and W^UV_i (sum_j a_ij c^KV_j) = sum_j a_ij v_ij: the same function as
formulas/mla.py, with queries and outputs of T tokens through W^UK and W^UV instead of keys and values of S. Less work
where few queries meet many stored tokens, more over whole sequences: by B h d_c ((S - T) (d_h + d_v)) less, and by
B h T S (2 d_c - d_h - d_v) more.
"""

from functools import partial

from headcount.formulas import mla

layer = partial(mla.layer, ideal=True)
