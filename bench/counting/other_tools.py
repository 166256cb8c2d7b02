"""What the attributes and arguments of other tools are called here, for the errors of those who type them.

Of torchinfo, torchsummary, ptflops, fvcore, thop, calflops and torch.utils.flop_counter.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from headcount.models.configs.suggest import did_you_mean

ATTRIBUTES = {
    **dict.fromkeys(("total_params", "num_params", "n_params", "total_parameters", "count_params"), "params"),
    **dict.fromkeys(("total_mult_adds", "mult_adds", "total_macs", "total", "total_ops"), "macs"),
    **dict.fromkeys(("total_flops", "get_total_flops", "count_flops"), "flops"),
    **dict.fromkeys(("total_param_bytes", "param_bytes", "params_bytes"), "weight_bytes"),
    **dict.fromkeys(("summary_list", "layers"), "modules"),
    **dict.fromkeys(("to_dict", "as_dict"), "to_json()"),
    **dict.fromkeys(("by_operator", "by_op"), "by_kind()"),
    **dict.fromkeys(("total_output_bytes", "total_output", "output_size"), "to_dataframe('modules').output"),
    "get_flop_counts": "by_module()",
    **dict.fromkeys(("by_module_and_operator", "to_pandas", "to_df"), "to_dataframe()"),
    **{name: f"to_dataframe().{name}()" for name in ("to_csv", "to_latex", "to_html", "to_markdown", "to_string")},
    "plot": "to_dataframe().plot('path', 'macs')",
    "non_trainable_params": "params - .trainable_params",
    "unsupported_ops": "unsupported",
    "uncalled_modules": "uncalled",
    "input_size": "inputs",
    "entries": "ledger",
    **dict.fromkeys(("rows", "table"), "to_dataframe()"),
    "top": "to_dataframe().nlargest(5, 'macs')",
}
"""Attribute of a count for what another tool calls by this name."""
ELSEWHERE = {
    "backward": "hc.count(model, x, backward=True) counts the gradients too",
    "compare": "headcount compare A B compares two, and hc.lock(model, x).check(path) one with a stored one",
    "latency": "headcount latency times a model",
    "save": ".to_dataframe('modules').to_csv(path) writes its table",
    "peak_memory": "headcount count --columns peak_forward_bytes peak_training_bytes measures it",
}
"""What has in place of a count what is not an attribute of it."""
INPUTS = "the inputs stand behind the model, hc.count(model, x)"
SIZES = "a size is input_size, as (1, 3, 224, 224)"
BATCH = "the batch is the first number of a size, as (8, 3, 224, 224)"
ROUNDED = "an expected number with a unit, '1.8G', holds at its digits"
PRINTED = "the result prints every column"
ARGUMENTS = {
    "device": "the model runs where its weights are, and model.to(device) moves it",
    "dtype": "dtypes are the types of sizes",
    "depth": "hc.summary has depth",
    "max": "hc.lock(model, x).check(path, max={'macs': '+5%'}) limits a count",
    "mode": "training=True runs in train mode",
    "cache_forward_pass": "each call runs the model",
    **dict.fromkeys(
        ("tolerance", "rtol", "atol", "rel_tol"), "an expected number with a unit, '1.8G', holds at its digits"
    ),
    **dict.fromkeys(("batch_size", "batch_dim"), BATCH),
    **dict.fromkeys(("input_data", "inputs", "args", "example_inputs"), INPUTS),
    **dict.fromkeys(("input_shape", "input_res", "input_sizes"), SIZES),
    **dict.fromkeys(("custom_ops", "custom_modules_hooks"), "formulas are the MACs of an operator by its name"),
    **dict.fromkeys(("verbose", "col_names", "col_width", "row_settings"), PRINTED),
    **dict.fromkeys(("as_strings", "print_per_layer_stat", "print_results", "output_as_string"), PRINTED),
}
"""What to do in place of an argument that another tool has."""
NONE_IS_MEANT = ("depth",)
"""Arguments of which None is a choice and not the default."""


def attribute_error(owner: type, name: str) -> AttributeError:
    """Return the error of an attribute that ``owner`` does not have, with the one that is meant."""
    known = [one for one in {*dir(owner), *getattr(owner, "__dataclass_fields__", ())} if not one.startswith("_")]
    if name.startswith("_"):
        hint = ""
    elif name in ATTRIBUTES:
        meant = ATTRIBUTES[name]
        has = "it has" if re.split(r"\W", meant)[0] in known else "what hc.count(model, x) returns has"
        hint = f"; {has} .{meant}"
    elif name in ELSEWHERE:
        hint = f"; {ELSEWHERE[name]}"
    else:
        hint = did_you_mean(name, known)
    return AttributeError(f"{owner.__name__} has no attribute {name!r}{hint}")


def argument_error(taker: str, unknown: Iterable[str], known: Iterable[str]) -> TypeError:
    """Return the error of arguments that ``taker`` does not take; it takes ``known`` ones."""
    names, known = list(unknown), list(known)
    hints = dict.fromkeys(ARGUMENTS[name] for name in names if name in ARGUMENTS)
    near = [did_you_mean(name, _alike(name, known) if name in ARGUMENTS else known) for name in names]
    return TypeError(f"{taker} takes no {', '.join(names)}{''.join(f'; {hint}' for hint in hints)}{''.join(near)}")


def _alike(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that differ from one of another tool by a letter."""
    return get_close_matches(name, known, n=1, cutoff=0.9)
