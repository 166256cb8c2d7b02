"""Optional columns: cache, decoding, training and intensity from the ledger, and measured activations.

An account is a function of a case and assumptions, with its column head and the statements that explain it.
Importable without torch.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.bench.case import Case, layers_of
from headcount.bench.column import Column, plural
from headcount.bench.errors import UsageError, read_toml
from headcount.bench.hardware import Hardware, Peak
from headcount.bench.performance import model as expected_times
from headcount.bench.training_flops import find_rule, flops_per_token, tokens_of, utilisation
from headcount.bench.variants.variant import variant
from headcount.formulas import backward, decoding, prices
from headcount.formulas.conventions import CONVENTIONS, Rule
from headcount.formulas.ledger import Ledger, Size, divide
from headcount.formulas.ledger import flops as ledger_flops
from headcount.models.configs.base import ConfigError
from headcount.models.configs.numbers import whole_bytes
from headcount.models.configs.suggest import choices

if TYPE_CHECKING:
    from headcount.bench.counting.result import Count, Unknown

RECIPES = {
    "adamw-mixed": {"weights": 2, "gradients": 2, "master weights": 4, "two moments": 8},
    "adamw": {"weights": 4, "gradients": 4, "two moments": 8},
    "sgd-momentum": {"weights": 4, "gradients": 4, "momentum": 4},
    "sgd": {"weights": 4, "gradients": 4},
}
"""Bytes per trained parameter by optimizer; the first is that of ZeRO (arXiv 1910.02054, section 3.1)."""


class NoAccount(Exception):
    """Raised for a case without a value of an account; the message is the reason."""


@dataclass(frozen=True)
class Assumptions:
    """Assumptions of accounts.

    ``context``: stored tokens, None for the input's. ``generate``: tokens generated one by one, after a given
    ``context``, else into an empty cache; None for as many as the context, into an empty cache. ``element_bytes``: of
    a number; of a weight and of a cached one where ``weight_bytes`` and ``cache_bytes`` are None, all three exact.
    Hardware peaks are None if not given. ``window``: keys that a causal query sees, itself included. ``optimizer`` is
    one of RECIPES, ``prices`` are FLOPs per element (formulas.prices). ``rule``: a rule of training FLOPs. ``tokens``
    (None for the input's) took ``seconds`` on ``devices`` of ``peak``. ``card``: the one whose times are expected.
    ``has_run_types``: measured activations have the types of the run, in place of ``element_bytes``.
    """

    context: int | None = None
    generate: int | None = None
    element_bytes: int | Fraction = 2
    weight_bytes: int | Fraction | None = None
    cache_bytes: int | Fraction | None = None
    peak_macs_per_s: float | None = None
    bytes_per_s: float | None = None
    window: int | None = None
    optimizer: str = "adamw-mixed"
    prices: Mapping[str, int] = field(default_factory=lambda: prices.PRICES, hash=False)
    rule: str | None = None
    tokens: int | None = None
    seconds: float | None = None
    devices: int = 1
    peak: Peak | None = None
    card: Hardware | None = field(default=None, hash=False)
    has_run_types: bool = False

    @property
    def bytes_each(self) -> dict[str, int | Fraction]:
        """Bytes of a number by what it is: a weight, cached, or any other, an activation."""
        return {
            "weight": self.weight_bytes or self.element_bytes,
            "cached": self.cache_bytes or self.element_bytes,
            "other": self.element_bytes,
        }

    def bytes_statement(self) -> str:
        """Return the bytes of numbers as text."""
        each = self.bytes_each
        texts = [f"{float(each['other']):g} bytes per element"]
        if each["weight"] != each["other"]:
            texts.append(f"{float(each['weight']):g} per weight")
        if each["cached"] != each["other"]:
            texts.append(f"{float(each['cached']):g} per cached element")
        return ", ".join(texts) + "."


ACTIVATION = ("other",)
"""What columns measure of a run's tensors, which may have types of their own."""


class Account:
    """A value and its column; decorates the function of the value, which has the name of the account.

    Its first argument is a Case, a Count where the account is ``of_counts``, and a Count alone where it is ``of_runs``.
    Of a module that needs a further run the value is ``measure``, a function of bench.counting.columns.

    Args:
        head: heading of the column.
        statements: keys of STATEMENTS.
        of_heads: whether the ideal form changes it.
        in_bytes: keys of Assumptions.bytes_each whose numbers the value measures.
        needs: assumptions without a default.
        of_counts: whether the function takes a Count too.
        of_runs: whether it takes a Count alone.
        of_last_run: whether it is the run's where a closed form ran: options of the run decide what it counts.
        options: those of the column.
    """

    value: Callable[[Any, Assumptions], Any]
    measure: Callable[[Any], Any] | None = None

    def __init__(
        self, head: str, *statements: str, of_heads: bool = True, in_bytes: tuple[str, ...] = (),
        needs: tuple[str, ...] = (), of_counts: bool = False, of_runs: bool = False, of_last_run: bool = False,
        **options: Any,
    ) -> None:  # fmt: skip
        self.head, self.statements, self.needs = head, statements, needs
        self.of_heads, self.in_bytes, self.options = of_heads, in_bytes, options
        self.of_counts, self.of_runs, self.of_last_run = of_counts, of_runs, of_last_run

    def __call__(self, value: Callable[[Any, Assumptions], Any]) -> Callable[[Any, Assumptions], Any]:
        """Register the account and return its function as it is."""
        self.value = value
        ACCOUNTS[value.__name__] = self
        return value

    @property
    def is_closed(self) -> bool:
        """Whether the function takes a closed form alone."""
        return not (self.of_counts or self.of_runs)

    def column(self, given: Assumptions | None = None) -> Column:
        """Return the column; where no note states the bytes of a number, its unit states those ``given``."""
        of = "bytes" if self.in_bytes else "MACs" if "MACs" in self.head else ""
        sizes = {given.bytes_each[kind] for kind in self.in_bytes} if given else set()
        each = f", {float(sizes.pop()):g} each" if len(sizes) == 1 else ""
        unit = f"bytes{each}" if self.in_bytes else ""
        options = {"kind": "int", "width": 14, "of": of, "unit": unit, **self.options}
        return Column(self.value.__name__, self.head, **options)


STATEMENTS = {
    "context": "Tokens in the cache after a decode step: {context}.",
    "step window": "A step stores and reads the last {window} tokens of a sequence at most.",
    "generated": "Generated tokens, {after}: {generate}.",
    "step bytes": (
        "Bytes of a step: used weights once, stored keys and values that are read once, new ones once; of routed "
        "experts and heads as many different ones as tokens can select."
    ),
    "forward": (
        "Least bytes of a forward pass: used weights once and, of a layer or a module without tokens, input and output "
        "once; a training step has three times its MACs and bytes."
    ),
    "causal": (
        "Causal: T (T + 1) / 2 pairs of a query and a key in self-attention of decoders, a single layer's included, or "
        "those that a module's masks leave; encoders and cross-attention keep all pairs."
    ),
    "window": "Windowed: causal, and a query sees at most {window} keys, itself included.",
    "token": "Per target token and per sample: all MACs of the forward pass, an encoder's too.",
    "prefill": (
        "Prefill: a prompt that fills the context in one pass, all pairs and the logits of every token; of a "
        "translation, the encoder and the keys and values of its output."
    ),
    "last logits": "Last logits: of a prompt, those of its last token alone, as engines that serve models compute.",
    "training": (
        "Training: forward and backward, no optimiser, nor what is computed again: scores of fused attention, and "
        "layers under activation checkpointing."
    ),
    "rule": "Training FLOPs by rule {rule}.",
    "utilisation": (
        "MFU: FLOPs by the rule without recomputation{hfu}, of {tokens} tokens in {seconds:g} s on {devices}, "
        "over the peak of {peak} each."
    ),
    "recompute": "Recomputed: every repeated layer keeps only its input, and runs once more in the backward pass.",
    "state": "Training state, bytes per trained parameter, {recipe}; a frozen one has weights only.",
    "saved": (
        "Saved bytes: measured, live after the forward pass of the model: what autograd keeps, the "
        "output, and what routers keep for their losses{types}."
    ),
    "peak": (
        "Peak bytes: the most live at once of what the model allocates, as executed{types}: activations, and in a "
        "training step the gradients of activations and weights; no weights, inputs or optimizer state."
    ),
    "layers": "Measured implementations of layers: {layers}.",
    "moved": "Bytes moved: what each operation of the run reads and writes, in the types of its tensors.",
    "time": "Times on {card} are not measured. {fitted}",
    "prices": "Operations without multiply-accumulates, in no MACs. {prices}",
}
"""Assumptions of accounts as text, in the order of a table's notes."""

ACCOUNTS: dict[str, Account] = {}
OF_PRESETS = "known of closed forms alone: presets, layers, config.json"
OF_RUNS = "known only where the module runs: count one TARGET"
OF_TIMES = "of a module that runs, headcount count TARGET --on CARD prints it"
"""Reasons for a missing value."""

CACHED, STEP = ("cached",), ("weight", "cached")
BOUND = {"kind": "text", "width": 11, "needs": ("peak_macs_per_s", "bytes_per_s")}
RULE = {"of_counts": True, "needs": ("rule",)}
PERCENT = {**RULE, "kind": "fixed", "digits": 2, "unit": "%", "of": "", "needs": ("rule", "seconds", "peak")}
FLOPS = {**RULE, "of": "FLOPs", "unit": "FLOPs", "width": 23}
INTENSITY = {"kind": "fixed", "digits": 3, "width": 11, "of": ""}


def context(case: Case, given: Assumptions) -> int | None:
    """Return the tokens in the cache after the step; None for an image model, which has no length."""
    return given.context or case.lengths.get("tgt_len") or case.lengths.get("seq_len")


def step(case: Case, stored: Size, new: Size = 1) -> Ledger:
    """Return the ledger of ``new`` tokens with ``stored`` in the cache afterwards.

    Raises NoAccount for a model that does not decode.
    """
    _check_decodes(case)
    return case.step(stored, new)


def _check_decodes(case: Case) -> None:
    """Raise NoAccount for a model or layer that does not decode step by step."""
    if case.no_step:
        raise NoAccount(case.no_step)


def encoder_macs(case: Case) -> int:
    """Return the MACs before the first step: the encoder, and keys and values of its output; 0 without an encoder."""
    if case.is_layer:
        return 0
    return replace(case, sizes={**case.sizes, "T": 0}).ledger.macs - step(case, 0, 0).macs


def _stored(case: Case, given: Assumptions, tokens: int | None) -> int | None:
    """Return how many of the last ``tokens`` tokens a step stores and reads: those of the window, if there is one."""
    return case.stored(tokens, given.window)


def _total_of_steps(case: Case, given: Assumptions, cost: Callable[[Ledger], int]) -> int:
    """Return the sum of ``cost`` over the steps that generate tokens one by one."""
    form = case.form
    # the numbers of stored tokens at which the cost of a step changes its polynomial
    changes = form.slope_changes(**case.config.letters()) if hasattr(form, "slope_changes") else ()
    if given.window is not None:
        changes = (*changes, given.window)

    def cost_of_step(stored: int) -> int:
        return cost(step(case, _stored(case, given, stored)))

    total = partial(decoding.total, cost_of_step, slope_changes=changes)
    if given.generate and given.context:
        return total(given.context + given.generate) - total(given.context)
    return total(given.generate or context(case, given))


def _last_step(case: Case, given: Assumptions) -> Ledger:
    """Return the ledger of the step that fills the context."""
    return step(case, _stored(case, given, context(case, given)))


def _step_bytes(ledger: Ledger, given: Assumptions) -> Size:
    """Return the bytes that a step moves."""
    each = given.bytes_each
    return decoding.step_weights(ledger) * each["weight"] + decoding.step_cached(ledger) * each["cached"]


def _bound_by(given: Assumptions, intensity: Fraction) -> str:
    ridge = Fraction(given.peak_macs_per_s) / Fraction(given.bytes_per_s)
    return "compute" if intensity >= ridge else "memory"


@Account("MACs", of_counts=True, of_last_run=True)
def macs(case: "Case | Count", given: Assumptions) -> int:
    """Return the MACs of the forward pass; of a run those that it counts."""
    return case.macs


@Account("FLOPs", of_counts=True, of_last_run=True, of="FLOPs")
def flops(case: "Case | Count", given: Assumptions) -> int:
    """Return the FLOPs of the forward pass, two for each MAC; of a run those that it counts."""
    return ledger_flops(macs(case, given))


@Account("params", of_counts=True, of_heads=False, of="params")
def params(case: "Case | Count", given: Assumptions) -> int:
    """Return the parameters."""
    return case.params


@Account("active\nparams", of_counts=True, of="params")
def active_params(case: "Case | Count", given: Assumptions) -> int:
    """Return the parameters that a token uses. Raises NoAccount where they are not known."""
    found = case.active_params
    if found is None:
        raise NoAccount(
            "the run selects by value, so a token may not use every parameter; model.active_params = N states them"
        )
    return found


@Account("KV cache\nper token", "context", of_heads=False, in_bytes=CACHED)
def kv_token_bytes(case: Case, given: Assumptions) -> int:
    """Return the bytes that one more token of one sequence adds to the cache; 0 where it is full at the context."""
    full = decoding.cache_elements(_last_step(case, given))
    longer = decoding.cache_elements(step(case, _stored(case, given, context(case, given) + 1)))
    return (longer - full) // case.lengths["batch_size"] * given.bytes_each["cached"]


@Account("KV cache", "context", of_heads=False, in_bytes=CACHED)
def kv_bytes(case: Case, given: Assumptions) -> Size:
    """Return the bytes of the cache at the context, an encoder's output included."""
    return decoding.cache_elements(_last_step(case, given)) * given.bytes_each["cached"]


@Account("prefill\nMACs", "context", "prefill", width=19)
def prefill_macs(case: Case, given: Assumptions) -> int:
    """Return the MACs before the first token: of a prompt that fills the context, or of an encoder."""
    prompt = context(case, given)
    read = step(case, prompt, prompt).macs
    return encoder_macs(case) or read


@Account("prefill MACs,\nlast logits", "context", "prefill", "last logits", width=19)
def prefill_last_macs(case: Case, given: Assumptions) -> int:
    """Return the same with the logits of the last token alone, which generation needs."""
    every = prefill_macs(case, given)
    if encoder_macs(case):
        return every
    prompt = context(case, given)
    return with_last_logits(step(case, prompt, prompt)).macs


def with_last_logits(form: Ledger) -> Ledger:
    """Return a ledger with the logits of the last token alone, which generation needs."""
    found = []
    for entry in form:
        is_of_logits = {"T", "V"} <= entry.dims.keys()
        found.append(replace(entry, dims={**entry.dims, "T": 1}) if is_of_logits else entry)
    return Ledger(tuple(found))


@Account("decode step\nMACs", "context")
def decode_macs(case: Case, given: Assumptions) -> int:
    """Return the MACs of the step after which the context is stored."""
    return _last_step(case, given).macs


@Account("decode step", "context", "step bytes", in_bytes=STEP)
def decode_bytes(case: Case, given: Assumptions) -> int:
    """Return the bytes that this step must move: weights, the cache, the new keys and values."""
    return _step_bytes(_last_step(case, given), given)


@Account("decode step\nMACs/byte", "context", "step bytes", **INTENSITY)
def decode_intensity(case: Case, given: Assumptions) -> Fraction:
    """Return the MACs of the step per byte that it must move."""
    return Fraction(decode_macs(case, given), decode_bytes(case, given))


@Account("decode step\nbound by", "context", "step bytes", **BOUND)
def decode_bound(case: Case, given: Assumptions) -> str:
    """Return which of the hardware peaks bounds the step: ``compute`` or ``memory``."""
    return _bound_by(given, decode_intensity(case, given))


@Account("generation\nMACs", "context", "generated", width=19)
def generate_macs(case: Case, given: Assumptions) -> int:
    """Return the MACs of generating tokens one by one, an encoder's pass included and none of a prompt."""
    return _total_of_steps(case, given, lambda ledger: ledger.macs) + encoder_macs(case)


@Account("generation", "context", "generated", "step bytes", in_bytes=STEP, width=19)
def generate_bytes(case: Case, given: Assumptions) -> int:
    """Return the bytes that those steps must move, one after the other, without the encoder's pass."""
    return _total_of_steps(case, given, lambda ledger: _step_bytes(ledger, given))


@Account("forward\nleast", "forward", in_bytes=("weight", "other"))
def forward_bytes(case: Case, given: Assumptions) -> int:
    """Return the bytes that any forward pass moves: used weights once, and a layer's input and output once."""
    read = sum(decoding.weights_read(entry) for entry in case.ledger) * given.bytes_each["weight"]
    if case.is_layer:
        lengths, tgt_len = case.lengths, case.lengths["tgt_len"]
        # a layer that attends to itself reads one input
        tokens = 2 * tgt_len + (lengths["src_len"] if lengths["src_len"] != tgt_len else 0)
        read += lengths["batch_size"] * tokens * case.config.d_model * given.element_bytes
    return read


@Account("forward\nMACs/byte", "forward", **INTENSITY)
def forward_intensity(case: Case, given: Assumptions) -> Fraction:
    """Return the MACs of a forward pass per byte that it must move; a training step has three times both."""
    return Fraction(case.ledger.macs, forward_bytes(case, given))


@Account("forward\nbound by", "forward", **BOUND)
def forward_bound(case: Case, given: Assumptions) -> str:
    """Return which of the hardware peaks bounds a forward pass, and a training step."""
    return _bound_by(given, forward_intensity(case, given))


@Account("forward\ncausal MACs", "causal", width=19)
def causal_macs(case: Case, given: Assumptions) -> int:
    """Return the MACs of a forward pass without the pairs that a causal mask hides.

    Raises NoAccount for a model without causal attention, and for a layer with more queries than keys.
    """
    return _masked_macs(case, None)


@Account("forward\nwindowed MACs", "causal", "window", width=19)
def windowed_macs(case: Case, given: Assumptions) -> int:
    """Return the causal MACs of attention that sees the window's keys only. Raises NoAccount without a window."""
    if given.window is None and not getattr(case.config, "windows", ()):
        raise NoAccount("attention has no window; --window N gives it one")
    return _masked_macs(case, given.window)


def _masked_macs(case: Case, window: int | None) -> int:
    _check_decodes(case)
    try:
        return case.masked_macs(window)
    except UsageError as error:
        raise NoAccount(str(error)) from None


@Account("MACs per\ntarget token", "token", of_counts=True, kind="fixed", digits=2, width=19)
def macs_per_token(case: "Case | Count", given: Assumptions) -> int | Fraction:
    """Return the MACs of the forward pass per target token. Raises NoAccount for an image model, as _forward_macs."""
    if not isinstance(case, Case):
        return divide(_forward_macs(case), tokens_of(case, CONVENTIONS["exact"]))
    if case.target_tokens is None:
        raise NoAccount("the input is no sequence of tokens")
    return divide(case.macs, case.target_tokens)


@Account("MACs per\nsample", "token", of_counts=True, kind="fixed", digits=2, width=19)
def macs_per_sample(case: "Case | Count", given: Assumptions) -> int | Fraction:
    """Return the MACs of the forward pass per sequence or image of the batch. Raises NoAccount as _forward_macs."""
    return divide(_forward_macs(case), case.samples)


def _forward_macs(case: "Case | Count") -> int:
    """Return the MACs of the forward pass. Raises NoAccount for the count of a forward and a backward pass."""
    if not isinstance(case, Case) and case.target and case.target.backward:
        raise NoAccount("it is of the forward pass alone, and the count has the backward pass too")
    return case.macs


@Account("training step\nMACs", "training", width=19)
def training_macs(case: Case, given: Assumptions) -> int:
    """Return the MACs of a training step: forward and gradients, without what is computed again."""
    if reason := getattr(case.config, "no_training", ""):
        raise NoAccount(reason)
    return backward.training_macs(case.ledger)


@Account("recomputed\nMACs", "training", "recompute", width=19)
def training_recompute_macs(case: Case, given: Assumptions) -> int:
    """Return the MACs of a training step that runs the forward pass of every repeated layer twice."""
    _check_repeats(case)
    if reason := getattr(case.config, "no_training", ""):
        raise NoAccount(reason)
    is_repeated = backward.repeated_layers(case.ledger)
    return backward.training_macs(case.ledger, recompute=lambda entry: is_repeated(entry.path))


@Account("training\nFLOPs per token", "rule", **FLOPS)
def training_flops_per_token(case: "Case | Count", given: Assumptions) -> Size:
    """Return the FLOPs per token of a training step that the rule counts."""
    return flops_per_token(case, find_rule(given.rule))


@Account("training\nFLOPs per step", "rule", **FLOPS)
def training_flops_per_step(case: "Case | Count", given: Assumptions) -> Size:
    """Return the FLOPs of a training step over the whole input that the rule counts."""
    rule = find_rule(given.rule)
    return flops_per_token(case, rule) * tokens_of(case, rule)


@Account("MFU", "rule", "utilisation", **PERCENT)
def mfu(case: "Case | Count", given: Assumptions) -> Fraction:
    """Return model FLOPs utilisation in percent: the rule's FLOPs without recomputation over the peak."""
    return _utilisation(case, find_rule(given.rule).without_recomputation, given)


@Account("HFU", "rule", "utilisation", **PERCENT)
def hfu(case: "Case | Count", given: Assumptions) -> Fraction:
    """Return hardware FLOPs utilisation in percent. Raises NoAccount for a rule without recomputation."""
    rule = find_rule(given.rule)
    if rule.without_recomputation == rule:
        raise NoAccount(f"rule {rule.name} counts no recomputation; hc.MFU counts what a training step runs again")
    return _utilisation(case, rule, given)


def _utilisation(case: "Case | Count", rule: Rule, given: Assumptions) -> Fraction:
    tokens = given.tokens or tokens_of(case, rule)
    return 100 * utilisation(flops_per_token(case, rule), tokens, given.seconds, given.devices, given.peak)


@Account("training\nstate bytes", "state", of_counts=True, of="bytes", width=19)
def training_state_bytes(case: "Case | Count", given: Assumptions) -> int:
    """Return the bytes of weights, gradients and optimizer states, without activations."""
    return state_bytes(case.trainable_params, case.params - case.trainable_params, given)


def state_bytes(trained: int, frozen: int, given: Assumptions) -> int:
    """Return the bytes of ``trained`` and ``frozen`` parameters with gradients and optimizer states."""
    recipe = RECIPES[given.optimizer]
    return trained * sum(recipe.values()) + frozen * recipe["weights"]


@Account("saved\nactivations", "saved", in_bytes=ACTIVATION)
def saved_bytes(case: Case, given: Assumptions) -> int:
    """Return the bytes of activations that the forward pass leaves for the backward pass."""
    found = case.activation_bytes("saved_bytes", _activation_bytes(given))
    return _measure(case, given).saved_bytes if found is None else found


def _activation_bytes(given: Assumptions) -> int | Fraction | None:
    """Return the bytes of a number of activations; None where they have the types of a run."""
    return None if given.has_run_types else given.element_bytes


@Account("saved\nrecomputed", "saved", "recompute", in_bytes=ACTIVATION)
def saved_recompute_bytes(case: Case, given: Assumptions) -> int:
    """Return the same where every repeated layer keeps its input only. Raises NoAccount for a single layer."""
    _check_repeats(case)
    return _measure(case, given, recompute=True).saved_bytes


def _check_repeats(case: Case) -> None:
    """Raise NoAccount for a single layer."""
    if case.is_layer:
        raise NoAccount("a single layer has no repeated layers to recompute")


@Account("forward\npeak", "peak", in_bytes=ACTIVATION)
def peak_forward_bytes(case: Case, given: Assumptions) -> int:
    """Return the most bytes that are live at once in a forward pass."""
    found = case.activation_bytes("peak_forward_bytes", _activation_bytes(given))
    return _measure(case, given, training=False).peak_bytes if found is None else found


@Account("training\npeak", "peak", in_bytes=ACTIVATION)
def peak_training_bytes(case: Case, given: Assumptions) -> int:
    """Return the most bytes that are live at once in a training step, gradients included."""
    return _measure(case, given).peak_bytes


def _measure(case: Case, given: Assumptions, *, training: bool = True, recompute: bool = False) -> Any:
    if not case.config.has_module:
        raise NoAccount("closed form only: there is no module whose peak could be measured")
    try:
        from headcount.bench.peaks import measure

        return measure(case, training=training, element_bytes=given.element_bytes, recompute=recompute)
    except ModuleNotFoundError as error:
        raise NoAccount(f"peak bytes are measured, which needs {error.name}") from None
    except ConfigError as reason:
        raise NoAccount(f"peak bytes not measured: {reason}") from None


OTHER_FLOPS = {f"{name}_flops": kinds for name, kinds in prices.GROUPS.items()} | {"other_flops": tuple(prices.PRICES)}
"""Kinds of operations without multiply-accumulates by account."""


def _other_flops(head: str, name: str, **options: Any) -> None:
    """Register the FLOPs of the kinds ``OTHER_FLOPS[name]`` as an account."""

    def value(case: "Case | Count", given: Assumptions) -> int:
        if isinstance(case, Case):
            if reason := getattr(case.config, "unpriced", ""):
                raise NoAccount(reason)
            by_kind = prices.other_flops(case.ledger, given.prices)
        elif case.other_flops is None or given.prices != prices.PRICES:
            raise NoAccount(OF_PRESETS)
        else:
            by_kind = case.other_flops
        return sum(by_kind.get(kind, 0) for kind in OTHER_FLOPS[name])

    value.__name__ = name
    Account(head, "prices", of_counts=True, of="FLOPs", unit="FLOPs", **options)(value)


_other_flops("softmax", "softmax_flops")
_other_flops("norms", "norm_flops")
_other_flops("elementwise", "elementwise_flops")
_other_flops("other\noperations", "other_flops", width=19)


@Account("bytes\nmoved", "moved", of_runs=True, of_heads=False, of="bytes")
def bytes_moved(count: "Count", given: Assumptions) -> int | None:
    """Return the bytes that operations move as they are executed, each by itself."""
    return count.bytes_moved


@Account("MACs per\nbyte moved", "moved", of_runs=True, of_heads=False, **INTENSITY)
def intensity(count: "Count", given: Assumptions) -> Fraction:
    """Return the MACs per byte that operations move as they are executed."""
    if count.intensity is None:
        raise NoAccount("no operation moves bytes")
    return count.intensity


OPTIONS = {"peak_macs_per_s": "--peak-macs", "bytes_per_s": "--bandwidth", "rule": "--rules", "card": "--on"}
"""Options of assumptions with another name."""


def check(names: Sequence[str], given: Assumptions, more: Collection[str] = ()) -> None:
    """Raise UsageError for columns not in ACCOUNTS or ``more``, repeated ones, and those that lack assumptions."""
    for name in names:
        if name not in (*ACCOUNTS, *more):
            if name == "ideal":
                raise UsageError("ideal is a form and no column: MoH has its columns in both, --set form=ideal in one")
            own = f"; these tables have {', '.join(dict.fromkeys(more))}" if more else ""
            raise UsageError(
                f"unknown column {name!r}; {choices(name, (*more, *ACCOUNTS), 'headcount table --list')}{own}"
            )
        needs = () if name in more else ACCOUNTS[name].needs
        if missing := [OPTIONS.get(need, f"--{need}") for need in needs if getattr(given, need) is None]:
            raise UsageError(f"column {name} needs {' and '.join(missing)}")
    if len(set(names)) != len(names):
        raise UsageError(f"a column is given twice in {', '.join(names)}")


def read_prices(path: str | Path) -> dict[str, int]:
    """Return the prices of a TOML file, with the stated ones of other kinds. Raise UsageError for unknown kinds."""
    found = read_toml(path)
    for kind, price in found.items():
        if kind not in prices.PRICES or type(price) is not int or price < 0:
            kinds = ", ".join(prices.PRICES)
            raise UsageError(f"{path}: {kind} = {price} is no price; prices are integers from 0 on of {kinds}")
    return {**prices.PRICES, **found}


def measured_layers(names: Sequence[str], cases: Iterable["Case | Count"]) -> list[str]:
    """Return the implementations of layers whose activations the accounts ``names`` measure, as "mha fused"."""
    if not any({"saved", "peak"} & {*ACCOUNTS[name].statements} for name in names):
        return []
    configs = dict.fromkeys(case.config for case in cases if isinstance(case, Case) and case.config.has_module)
    try:
        from headcount.bench.peaks import implementations

        return list(dict.fromkeys(one for config in configs for one in implementations(config)))
    except ModuleNotFoundError:
        # nothing is measured without torch
        return []


def statement(names: Sequence[str], given: Assumptions, layers: Sequence[str] = ()) -> str:
    """Return the assumptions of the accounts ``names`` as text, with what measured_layers returns of their cases."""
    keys = {key for name in names for key in ACCOUNTS[name].statements}
    if "context" in keys and given.window is not None:
        keys.add("step window")
    if layers:
        keys.add("layers")
    if given.rule is None:
        # the rules of a table by rules are named below it
        keys.discard("rule")
    text = " ".join(text for key, text in STATEMENTS.items() if key in keys).format(
        context=given.context or "as many as the input has",
        generate=given.generate or "as many as the context",
        after=f"after {given.context} stored ones" if given.generate and given.context else "into an empty cache",
        window=given.window or "its window's",
        recipe=f"{given.optimizer}: {' + '.join(f'{size} {what}' for what, size in RECIPES[given.optimizer].items())}",
        prices=prices.statement(given.prices),
        layers=", ".join(layers),
        types=", in the types of its tensors" if given.has_run_types else "",
        rule=f"{given.rule}: {CONVENTIONS[given.rule or 'exact'].about}".rstrip("."),
        tokens="the input's" if given.tokens is None else f"{given.tokens:,}",
        seconds=given.seconds or 0,
        devices=plural(given.devices, "device"),
        peak=given.peak,
        hfu=", HFU with it" if "hfu" in names else "",
        card=given.card.name if given.card else "",
        fitted=expected_times.load().statement(given.card) if given.card else "",
    )
    has_bytes = any(ACCOUNTS[name].in_bytes for name in names)
    return f"{given.bytes_statement() if has_bytes else ''} {text}".strip()


def ideal_statement(cases: Iterable[Case]) -> str:
    """Return what the ideal forms of ``cases`` skip, as text; empty where none has such a form."""
    texts = dict.fromkeys(variant(layers_of(case.config)[0].variant).ideal for case in cases if case.ideal)
    return " ".join(f"Ideal: {text}" for text in texts)


def value_of(name: str, case: "Case | Count", given: Assumptions, run: "Count | None" = None) -> Any:
    """Return the value of an account of a closed form, or of a module that has run; ``run`` is the case's, if it ran.

    Raises NoAccount or UsageError where there is none.
    """
    account = ACCOUNTS[name]
    if run is not None and (account.of_runs or account.of_last_run):
        case = run
    if isinstance(case, Case):
        if account.of_runs:
            raise NoAccount(OF_RUNS)
    elif name in (case.columns or {}):
        return known((case.columns or {})[name])
    elif account.is_closed:
        raise NoAccount(OF_TIMES if "card" in account.needs else OF_PRESETS)
    value = account.value(case, given)
    try:
        return whole_bytes(value) if account.in_bytes else value
    except ValueError as reason:
        raise NoAccount(str(reason)) from None


def known(value: "int | Unknown") -> int:
    """Return a measured value. Raises NoAccount, with the reason, for one that is not known."""
    if isinstance(value, int):
        return value
    raise NoAccount(value.reason)


def values(
    names: Sequence[str], case: "Case | Count", given: Assumptions, run: "Count | None" = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the raw values of accounts by name, and the reason for each that is None."""
    found, missing = {}, {}
    for name in names:
        try:
            found[name] = value_of(name, case, given, run)
        except (NoAccount, UsageError) as reason:
            found[name], missing[name] = None, str(reason)
    return found, missing
