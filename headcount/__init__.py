"""Count MACs and parameters of a PyTorch model by running it, and of an attention layer by a formula of its sizes.

    import headcount as hc

    hc.count(model, x).macs                                       # every contraction of one run, in any formulation
    hc.lock(model, x).check("macs.lock")                          # compare that count with a file's, entry by entry
    hc.MFU(model, x, peak="H100 SXM bf16").update(tokens, seconds)  # model FLOPs utilisation of a training step
    hc.moa.layer("attn", B=1, T=7, S=7, d_m=13, E=11, K=3, D=5)   # a closed form: integers in, a ledger out
    hc.build(hc.preset("moa-8K8E128D"), device="cuda")            # a trainable model of the papers
    hc.convert(model, shared=16, routed=8)                        # a dense model as mixture-of-head attention

Each name is imported at its first use, so that closed forms and presets need no torch. Each attention variant is
an attribute too, its module of closed forms: ``mha``, ``moa`` and the others that ``dir`` lists. ``gqa`` and ``mqa``
are ``mha`` with fewer key/value heads. Sizes that make no layer raise ValueError.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headcount.bench.api.assertions import assert_macs
    from headcount.bench.api.count import count_macs as count
    from headcount.bench.api.count import count_macs as count_macs
    from headcount.bench.api.summary import summary
    from headcount.bench.contractions.classify import UnsupportedError
    from headcount.bench.errors import EnvironmentMissing, UsageError
    from headcount.bench.lock.api import CostChanged, lock
    from headcount.bench.mfu import MFU
    from headcount.formulas import aggregated as aggregated
    from headcount.formulas import mae as mae
    from headcount.formulas import mha as mha
    from headcount.formulas import mla as mla
    from headcount.formulas import moa as moa
    from headcount.formulas import moh as moh
    from headcount.formulas import moh_aggregated as moh_aggregated
    from headcount.formulas import switchhead as switchhead
    from headcount.models.build import build
    from headcount.models.configs.presets import preset
    from headcount.models.convert import convert
    from headcount.models.hugging_face import load_hugging_face

    gqa = mqa = mha

__version__ = "0.2.0"
__all__ = [
    "CostChanged", "EnvironmentMissing", "MFU", "UnsupportedError", "UsageError", "assert_macs", "build", "convert",
    "count", "count_macs", "load_hugging_face", "lock", "preset", "summary",
]  # fmt: skip

_bench = Path(__file__).with_name("bench")
CHECKOUT = None if _bench.is_dir() and not _bench.is_symlink() else Path(__file__).resolve().parents[1]
"""Root of the repository when running from a checkout; None for an installed wheel, which contains the packages."""

if CHECKOUT:
    # before the symbolic links in this folder, which are for static tools and are plain files on some systems
    __path__.insert(0, str(CHECKOUT))

_HOMES = {
    "CostChanged": "bench.lock.api:CostChanged",
    "EnvironmentMissing": "bench.errors:EnvironmentMissing",
    "MFU": "bench.mfu:MFU",
    "UnsupportedError": "bench.contractions.classify:UnsupportedError",
    "UsageError": "bench.errors:UsageError",
    "assert_macs": "bench.api.assertions:assert_macs",
    "build": "models.build:build",
    "convert": "models.convert:convert",
    "count": "bench.api.count:count_macs",
    "count_macs": "bench.api.count:count_macs",
    "load_hugging_face": "models.hugging_face:load_hugging_face",
    "lock": "bench.lock.api:lock",
    "preset": "models.configs.presets:preset",
    "summary": "bench.api.summary:summary",
}
"""Module and attribute of each name of ``__all__``."""
_OF_OTHER_TOOLS = (
    "FlopCountAnalysis", "FlopCounterMode", "calculate_flops", "flops", "get_model_complexity_info", "macs", "params",
    "parameter_count", "profile",
)  # fmt: skip
"""What other tools call their counts."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        module, _, attribute = _HOMES[name].partition(":")
        found = getattr(import_module(f"headcount.{module}"), attribute)
    elif not name.startswith("_") and name in _variants():
        found = import_module("headcount.formulas.checked").checked_form(name)
    else:
        raise AttributeError(f"module 'headcount' has no attribute {name!r}{_hint(name)}")
    globals()[name] = found
    return found


def _hint(name: str) -> str:
    """Return the end of the error of a name that is not here: the function or the name that is meant."""
    if name.startswith("_"):
        return ""
    if name in _OF_OTHER_TOOLS:
        return "; hc.count(model, x) counts: .macs, .flops, .params"
    if name in import_module("headcount.__main__").COMMANDS:
        return f"; it is a command: headcount {name} --help"
    suggest = import_module("headcount.models.configs.suggest")
    hint: str = suggest.did_you_mean(name, __dir__())
    return hint


def __dir__() -> list[str]:
    return sorted({*__all__, *_variants()})


def _variants() -> tuple[str, ...]:
    return (*import_module("headcount.models.configs.registry").VARIANTS, "gqa", "mqa")
