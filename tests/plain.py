"""The equations of MoA (arXiv 2210.05144) and MoH (2410.11842) as float64 numpy, token by token and head by head.

A layer is a function of its named arrays. Some values have no gradient: the denominator of Eq. 9, the selected experts,
f of L_a and L_b, and the probabilities that Eq. 10 subtracts. ``constants`` stores them at the first evaluation, and
later evaluations at shifted arrays read them, so that finite differences ignore them.
"""

from types import SimpleNamespace

import numpy as np


def softmax(x):
    """Return exp(x) over its sum."""
    e = np.exp(x - x.max())
    return e / e.sum()


def top(scores, k):
    """Return the indices of the k highest scores, the highest first."""
    return np.argsort(-scores, kind="stable")[:k].tolist()


def attend(q, keys, values):
    """Return the result of one query over its visible keys (Eq. 4, 10-11); zeros without any."""
    return softmax(keys @ q / np.sqrt(len(q))) @ values if len(keys) else np.zeros(values.shape[1])


def visible_keys(b, t, tgt_len, src_len, masks):
    """Return the positions of the keys that a query sees; causal queries are the last T of S positions."""
    last = src_len - tgt_len + t if masks["causal"] else src_len
    hidden = masks["key_padding_mask"]
    return [s for s in range(src_len) if s <= last and not (hidden is not None and hidden[b, s])]


def affine(a, name, x, rows=slice(None)):
    """Return W x + b of some rows."""
    y = a[f"{name}.weight"][rows] @ x
    return y + a[f"{name}.bias"][rows] if f"{name}.bias" in a else y


def expert_affine(a, name, x, e):
    """Return x W_e + b_e."""
    y = x @ a[f"{name}.weight"][e]
    return y + a[f"{name}.bias"][e] if f"{name}.bias" in a else y


def gate(kind, probs, chosen, token, constants):
    """Return the weights of the K selected experts: Eq. 9, the released code's, or Eq. 2's."""
    if kind == "selected":
        return softmax(np.log(probs[chosen]))
    if kind == "released":
        return probs[chosen]
    return probs[chosen] / constants.setdefault(("denominator", token), probs[chosen].sum())


def rotate(x, position, theta):
    """Rotate the pairs (x_i, x_(i + d_h/2)) by position / theta^(2i / d_h); return ``x`` itself without theta."""
    if theta is None:
        return x
    half = len(x) // 2
    angle = position / theta ** (2 * np.arange(half) / len(x))
    one, two = x[:half], x[half:]
    return np.concatenate((one * np.cos(angle) - two * np.sin(angle), two * np.cos(angle) + one * np.sin(angle)))


def moa(a, config, masks, constants):
    """Return the output (Eq. 6-12), and the sum of alpha L_a (Eq. 13-15) and beta L_z (Eq. 16).

    In JetMoE an expert is g heads on g shared keys and values, with rotary positions; a bias is added after the sum.
    """
    query, padded, theta = a["query"], masks["query_padding_mask"], masks["theta"]
    width = config.head_dim // config.num_kv_heads
    parts = [slice(j * width, (j + 1) * width) for j in range(config.num_kv_heads)]
    key = a.get("key", query)
    value = a.get("value", key)
    out = np.zeros_like(query)
    counts, summed, squares = np.zeros(config.num_experts), np.zeros(config.num_experts), []
    for b in range(len(query)):
        k = [np.stack([rotate(affine(a, "k_proj", x, part), s, theta) for s, x in enumerate(key[b])]) for part in parts]
        v = [np.stack([affine(a, "v_proj", x, part) for x in value[b]]) for part in parts]
        for t, x in enumerate(query[b]):
            if padded is not None and padded[b, t]:
                continue
            logits = a["router.proj.weight"] @ x
            if config.noisy:
                logits = logits + masks["noise"][b, t] * np.log1p(np.exp(a["router.noise_proj.weight"] @ x))
            probs = softmax(logits)
            chosen = constants.setdefault(("chosen", b, t), top(probs, config.top_k))
            own = visible_keys(b, t, len(query[b]), len(key[b]), masks)
            for w, e in zip(gate(config.gates, probs, chosen, (b, t), constants), chosen, strict=True):
                q = expert_affine(a, "q_proj", x, e)
                heads = [
                    attend(rotate(q[part], t, theta), k_j[own], v_j[own])
                    for part, k_j, v_j in zip(parts, k, v, strict=True)
                ]
                out[b, t] += w * expert_affine(a, "out_proj", np.concatenate(heads), e)
                counts[e] += 1
            out[b, t] += a.get("output_bias", 0)
            summed += probs
            squares.append((logits.max() + np.log(np.exp(logits - logits.max()).sum())) ** 2)
    balance = config.num_experts * (counts / max(counts.sum(), 1)) @ (summed / max(summed.sum(), 1e-300))
    z = np.mean(squares) if squares else 0.0
    return out, config.balance_loss_weight * balance + config.z_loss_weight * z


def head_gates(a, config, x, norms, token, constants, every):
    """Return the gate of each head (Eq. 5-6, printed or released; Eq. 9-10 by norm) and the routed probabilities.

    ``every``: whether Eq. 10 passes a gradient to heads that are not selected.
    """
    s, r, released = config.num_shared_heads, config.top_k, config.gates == "released"
    gates, probs = np.zeros(config.num_heads), None
    gates[:s] = 1
    if "router.shared_proj.weight" in a:
        gates[:s] = softmax(a["router.shared_proj.weight"] @ x) * (s if released else 1)
    if r:
        by_norm = config.router == "query_norm"
        scores = norms[s:] / norms[s:].std(ddof=1) if by_norm else a["router.routed_proj.weight"] @ x
        probs = softmax(scores)
        chosen = constants.setdefault(("chosen", *token), top(probs, r))
        if by_norm:
            # 1 or 0 at the point, with the gradient of the probability
            shift = probs - constants.setdefault(("probabilities", *token), probs)
            for i, p in enumerate(shift):
                gates[s + i] = (i in chosen) + (p if every or i in chosen else 0.0)
        else:
            for i in chosen:
                gates[s + i] = probs[i] / probs[chosen].sum() * r if released else probs[i]
    if "router.group_proj.weight" in a:
        pair = softmax(a["router.group_proj.weight"] @ x) * (2 if released else 1)
        gates[:s], gates[s:] = gates[:s] * pair[0], gates[s:] * pair[1]
    return gates, probs


def moh(a, config, masks, constants, every=True):
    """Return the output (Eq. 3-6, 9-10) and beta L_b (Eq. 7-8), E times that for released gates."""
    query, padded, theta, d_h = a["query"], masks["query_padding_mask"], masks["theta"], config.head_dim
    key = a.get("key", query)
    value = a.get("value", key)
    out, group = np.zeros_like(query), config.num_heads // config.num_kv_heads
    routed = config.num_heads - config.num_shared_heads
    chosen_by, summed, tokens = np.zeros(routed), np.zeros(routed), 0
    rows = [slice(i * d_h, (i + 1) * d_h) for i in range(config.num_heads)]
    for b in range(len(query)):
        kv = rows[: config.num_kv_heads]
        k = np.array([[rotate(affine(a, "k_proj", x, row), s, theta) for s, x in enumerate(key[b])] for row in kv])
        v = np.array([[affine(a, "v_proj", x, row) for x in value[b]] for row in kv])
        for t, x in enumerate(query[b]):
            if padded is not None and padded[b, t]:
                continue
            q = [affine(a, "q_proj", x, row) for row in rows]
            norms = np.array([np.sqrt(one @ one) for one in q])
            gates, probs = head_gates(a, config, x, norms, (b, t), constants, every)
            own = visible_keys(b, t, len(query[b]), len(key[b]), masks)
            for i, g in enumerate(gates):
                head = attend(rotate(q[i], t, theta), k[i // group][own], v[i // group][own])
                out[b, t] += g * (a["out_proj.weight"][:, rows[i]] @ head)
            if "out_proj.bias" in a:
                out[b, t] += a["out_proj.bias"]
            tokens += 1
            if probs is not None:
                chosen_by[constants["chosen", b, t]] += 1
                summed += probs
    balance = (summed / max(tokens, 1)) @ (chosen_by / max(tokens, 1)) if config.top_k else 0.0
    return out, config.balance_loss_weight * balance * (routed if config.gates == "released" else 1)


def mha(a, config, masks, constants):
    """Return the output (Eq. 3-4), as MoH with shared heads alone, all with gate 1, and no loss."""
    shared = dict(num_shared_heads=config.num_heads, top_k=0, gates="printed", balance_loss_weight=0.0)
    return moh(a, SimpleNamespace(**vars(config), **shared), masks, constants)
