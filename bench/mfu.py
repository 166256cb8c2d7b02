"""Model FLOPs utilisation of a training loop: a rule's FLOPs per second as a share of the hardware's peak.

mfu = hc.MFU(model, sample, peak="H100 SXM bf16", rule="palm")
for batch in loader:
    with mfu.step(tokens=batch.numel()):
        train(batch)
    logger.log(mfu.metrics)                                      # {"mfu": 0.41, "tokens_per_s": …}

Trainer(…, callbacks=[mfu.hugging_face_callback()])
lightning.Trainer(callbacks=[mfu.lightning_callback()])
"""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils._pytree import tree_leaves

from headcount.bench.api.count import OPTIONS, InputsMissing, count_macs, named_model, resolve_call
from headcount.bench.case import Case
from headcount.bench.closed_form.rules import model_of
from headcount.bench.column import DASH
from headcount.bench.counting.keywords import UnknownKeywords, parameters_of
from headcount.bench.counting.result import Count
from headcount.bench.counting.run import count_contractions, inputs_of
from headcount.bench.errors import EnvironmentMissing, UsageError, excerpt, require_package
from headcount.bench.hardware import parse_peak
from headcount.bench.trace.record import record
from headcount.bench.training_flops import (
    NO_TOKENS,
    ActiveParamsUnknown,
    above_peak,
    active_trainable,
    find_rule,
    flops_per_token,
    recomputed_flops,
    tokens_of,
    trainable_range,
    used_experts,
    utilisation,
)
from headcount.formulas.ledger import Entry, Size, divide


class MFU:
    """Model FLOPs utilisation of training ``model`` under a rule; its forward pass is counted once, on ``sample``.

    ``flops_per_token`` are the rule's without recomputation, ``hardware_flops_per_token`` with it: as often as the rule
    itself states, else with the products that a training step of the model runs again, as activation checkpointing
    does; of a count, a name and a model that does not train here they are None. ``value`` is the share of the last
    update, ``average`` that of all, None before the first; ``metrics`` is a dict for a logger; ``tokens`` and
    ``seconds`` are totals.

    The FLOPs per token are those of sequences as long as the sample's. Where the rule counts attention (all but those
    of N, as 6n), make an MFU for each length: ``{T: hc.MFU(model, (1, T), peak=…) for T in lengths}``.

    Of frozen parameters (``requires_grad=False``, as LoRA leaves them) the FLOPs of their own gradients are not
    counted; those of their input are, also where nothing before them trains and a step leaves them out.

    Args:
        model: what hc.count takes, or the result of hc.count. A module also runs one training step, on a copy.
        sample: inputs as long as in training, as hc.count takes them; keywords too: ``input_ids=ids``.
        peak: of one device, dense: a card, "H100 SXM bf16" or torch.cuda.get_device_name(), in bf16 where no dtype is
            given; or FLOP/s, 989e12, "989 TFLOP/s" or "989T bf16"; or a pair of these and a dtype.
        rule: a rule of headcount table --list; of mixtures, those of N take the active parameters.
        devices: devices that share the tokens of an update.
        sample_tokens: tokens of ``sample`` (default: elements of its ids, or B T of B x T x width).
        active_params: parameters that a token uses, where the count does not show them, as of some mixtures.
        active_trainable_params: the trainable ones of them (default: those of the count; unknown of a mixture with
            frozen weights whose active_params are).

    Raises:
        UsageError: for an unknown peak or rule, a rule that needs more than a run shows, unknown tokens, a model that
            does not train, and active_params other than those that the count shows.
    """

    def __init__(
        self,
        model: Any,
        *sample: Any,
        peak: str | float | tuple[str | float, str | torch.dtype],
        rule: str = "palm",
        devices: int = 1,
        sample_tokens: int | None = None,
        active_params: int | None = None,
        active_trainable_params: int | None = None,
        **forward: Any,
    ) -> None:
        self.peak, self.devices = parse_peak(_plain(peak)), _whole("devices", devices)
        known = {
            name: _whole(name, value, least)
            for name, value, least in (
                ("sample_tokens", sample_tokens, 1),
                ("active_params", active_params, 1),
                ("active_trainable_params", active_trainable_params, 0),
            )
            if value is not None
        }
        model, forward = named_model(model, forward)
        try:
            counted = _count(model, sample, forward)
        except UnknownKeywords as error:
            raise error.also_of(MFU) from None
        if known and isinstance(counted, Case):
            raise UsageError(f"{' and '.join(known)}: of a module; {counted.name} has its own")
        how = {name: value for name, value in known.items() if name != "sample_tokens"}
        if isinstance(counted, Count):
            _check_active(counted, **how)
            how["tokens"] = _tokens_of(counted, known.get("sample_tokens"))
        self.rule = find_rule(rule, counted, **how)
        if isinstance(model, str) and not known:
            # a count may be of a configuration that has changed since
            counted = model_of(counted, self.rule)
            how = how if isinstance(counted, Count) else {}
        tokens = how.get("tokens") or tokens_of(counted, self.rule)
        try:
            self.flops_per_token = flops_per_token(counted, self.rule.without_recomputation, **how)
        except ActiveParamsUnknown as error:
            known_by = ", or ".join([f"pass {_unknown_of(counted, **how)}", *error.advice])
            raise UsageError(error.reason, advice=[known_by]) from None
        self.hardware_flops_per_token: Size | None = None
        states_recomputation = self.rule.without_recomputation != self.rule
        if states_recomputation:
            self.hardware_flops_per_token = flops_per_token(counted, self.rule, **how)
        self._sample = None if states_recomputation else (sample, forward, tokens)
        if not isinstance(model, str | Case | Count):
            self._count_recomputation(model)
        self._sequence_tokens = Fraction(tokens, counted.samples)
        self._has_length = any(term.of == "size" for term in self.rule.terms)
        self.tokens, self.seconds = 0, 0.0
        self.value: float | None = None
        self.metrics: dict[str, float] = {}

    def _count_recomputation(self, model: Any) -> None:
        """Count what a training step of ``model`` runs again, where the rule does not state it."""
        if self._sample is None:
            return
        sample, forward, tokens = self._sample
        again = _products_run_again(model, sample, forward)
        if again is not None:
            added = divide(recomputed_flops(again, self.rule), tokens)
            self.hardware_flops_per_token = divide(self.flops_per_token + added, 1)

    def update(self, tokens: int, seconds: float, seq_len: int | None = None) -> float:
        """Return the utilisation, as a share of 1, of ``tokens`` tokens that all devices trained on in ``seconds``.

        They are numbers above 0 of any type, tensors and arrays of one element too. Raises UsageError for anything
        else, and for a ``seq_len`` at which the rule's FLOPs per token are not the sample's.
        """
        self._check_length(seq_len)
        tokens, seconds = _above_0("tokens", tokens), float(_above_0("seconds", seconds))
        self.tokens, self.seconds = divide(self.tokens + tokens, 1), self.seconds + seconds
        self.metrics = self._metrics(tokens, seconds)
        self.value = self.metrics["mfu"]
        for text in above_peak({"mfu": 100 * self.value}):
            warnings.warn(text, stacklevel=2)
        return self.value

    def _metrics(self, tokens: Any, seconds: float) -> dict[str, float]:
        """Return the utilisation and the rates of ``tokens`` tokens in ``seconds``."""
        share = self._share(tokens, seconds, self.flops_per_token)
        found = {
            "mfu": share,
            "tokens_per_s": float(tokens) / seconds,
            "model_tflops_per_s": share * self.peak.flops_per_s / 1e12,
        }
        if self.hardware_flops_per_token not in (None, self.flops_per_token):
            found["hfu"] = self._share(tokens, seconds, self.hardware_flops_per_token)
        return found

    @contextmanager
    def step(self, tokens: int, seq_len: int | None = None) -> Iterator["MFU"]:
        """Time the block as a training step over ``tokens`` tokens and call ``update``.

        Synchronises CUDA before and after the block.
        """
        tokens = _above_0("tokens", tokens)
        self._check_length(seq_len)
        started = _now()
        yield self
        self.update(tokens, _now() - started)

    def _check_length(self, seq_len: int | None) -> None:
        """Raise UsageError for a length at which the FLOPs per token of the rule are others."""
        if seq_len is None or not self._has_length or _whole("seq_len", seq_len) == self._sequence_tokens:
            return
        raise UsageError(
            f"seq_len={seq_len}: rule {self.rule.name} has other FLOPs per token than at the sample's "
            f"{self._sequence_tokens} tokens; make an MFU for each length, hc.MFU(model, (1, {seq_len}), peak=…)"
        )

    @property
    def average(self) -> float | None:
        """The utilisation of all updates together; None before the first."""
        return self._share(self.tokens, self.seconds, self.flops_per_token) if self.seconds else None

    def _share(self, tokens: int, seconds: float, flops: Any) -> float:
        return float(utilisation(flops, tokens, seconds, self.devices, self.peak))

    def __str__(self) -> str:
        percentages = {name: 100 * self.metrics[name] for name in ("mfu", "hfu") if name in self.metrics}
        shares = [f"{name.upper()} {value:.4g} %" for name, value in percentages.items()]
        average = "" if self.average is None else f"MFU {100 * self.average:.4g} %"
        if average not in ("", *shares):
            shares[-1] += f" in the last update, {average} on average"
        flops = f"{_flops(self.flops_per_token)} FLOPs per token"
        if self._has_length:
            flops += f" of {float(self._sequence_tokens):g}-token sequences"
        if self.hardware_flops_per_token not in (None, self.flops_per_token):
            flops += f", {_flops(self.hardware_flops_per_token)} with recomputation"
        start = ", ".join(shares) or "MFU: no update yet"
        text = f"{start}; {flops} by rule {self.rule.name}, peak {self.peak}"
        return ". ".join([text, *above_peak(percentages)])

    __repr__ = __str__

    def _check_batch(self, tokens: int, full: int) -> None:
        """Warn where ``tokens`` of a step are none of sequences of the sample's length; a full batch has ``full``.

        Fewer sequences than a full batch may be all that there are.
        """
        are_fewer = tokens < full and tokens % self._sequence_tokens == 0
        if self._has_length and tokens != full and not are_fewer:
            text = (
                f"a step has {tokens:,} tokens, where full batches of the sample's length have {full:,}: the FLOPs per "
                f"token are those of {float(self._sequence_tokens):g}-token sequences"
            )
            warnings.warn(text, stacklevel=2)

    def _batch_tokens(self, sequences: int) -> int:
        return int(sequences * self._sequence_tokens)

    def hugging_face_callback(self) -> Any:
        """Return a callback for transformers.Trainer that logs the metrics of the steps since the last log.

        It lets the Trainer count the tokens of ids, by include_num_input_tokens_seen="all" where that is "no"; of other
        inputs every batch counts as a full one of the sample's. Activation checkpointing that the Trainer turns on is
        in ``hfu``. It warns where the first step has other tokens than full batches of the sample's length.
        Each process updates for its own device, so ``devices`` stays 1 in data parallel training. A logger that runs
        before it, as one of report_to, gets the metrics if the callback is the first of trainer.callback_handler.
        """
        require_package("transformers")
        mfu = self

        class MFUCallback(import_module("transformers").TrainerCallback):
            """Updates after each optimizer step."""

            def on_train_begin(self, args, state, control, model, **kwargs):
                self.since, self.is_first = (mfu.tokens, mfu.seconds), True
                self.has_ids = getattr(model, "main_input_name", "input_ids") == "input_ids"
                if self.has_ids and args.include_num_input_tokens_seen == "no":
                    args.include_num_input_tokens_seen = "all"
                if any(getattr(one, "gradient_checkpointing", False) for one in model.modules()):
                    # the Trainer may have turned it on after the sample was counted
                    mfu._count_recomputation(model)

            def on_step_begin(self, args, state, control, **kwargs):
                self.started, self.seen = _now(), state.num_input_tokens_seen

            def on_step_end(self, args, state, control, **kwargs):
                seconds = _now() - self.started
                full = mfu._batch_tokens(args.train_batch_size * args.gradient_accumulation_steps)
                tokens = (state.num_input_tokens_seen - self.seen) // args.world_size if self.has_ids else 0
                if tokens and self.is_first:
                    mfu._check_batch(tokens, full)
                self.is_first = False
                mfu.update(tokens or full, seconds)

            def on_log(self, args, state, control, logs=None, **kwargs):
                tokens, seconds = mfu.tokens - self.since[0], mfu.seconds - self.since[1]
                if logs and "loss" in logs and tokens:
                    # the loss is the mean over these steps too
                    metrics = mfu._metrics(tokens, seconds)
                    logs.update(metrics)
                    state.log_history[-1].update(metrics)
                    self.since = mfu.tokens, mfu.seconds

        return MFUCallback()

    def lightning_callback(self) -> Any:
        """Return a callback for a Lightning Trainer that logs ``metrics`` after each batch, of the sample's lengths."""
        homes = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
        name = next((home for package, home in homes.items() if find_spec(package)), None)
        if name is None:
            raise EnvironmentMissing("lightning is missing: pip install lightning")
        mfu = self

        class MFUCallback(import_module(name).Callback):
            """Updates after each batch."""

            def on_train_batch_start(self, trainer, module, batch, batch_idx):
                self.started = _now()

            def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
                first = next(leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor))
                mfu.update(mfu._batch_tokens(len(first)), _now() - self.started)
                module.log_dict(mfu.metrics)

        return MFUCallback()


def _count(model: Any, sample: tuple, forward: dict[str, Any]) -> "Case | Count":
    """Return the count of ``model``, of a closed form its case, of a count itself.

    Raises UsageError where a count ran on other inputs than ``sample``.
    """
    if isinstance(model, Case) and not sample and not forward:
        return model
    if not isinstance(model, Count):
        try:
            return count_macs(model, *sample, **forward)
        except InputsMissing:
            raise UsageError(
                f"no sample: give {type(model).__name__} inputs as long as in training, hc.MFU(model, ids, peak=…), or "
                "their sizes, (8, 2048)"
            ) from None
    if unknown := [name for name, value in forward.items() if not isinstance(value, Tensor)]:
        raise UnknownKeywords("MFU", unknown, parameters_of(MFU))
    given, ran = ([line.partition(": ")[2] for line in lines] for lines in (inputs_of(sample, forward), model.inputs))
    if given and given != ran:
        raise UsageError(f"the count ran on {', '.join(ran)}, the sample is {', '.join(given)}; give the count alone")
    return model


def _tokens_of(counted: Count, sample_tokens: int | None) -> int:
    """Return the tokens of what was counted. Raises UsageError where they are unknown."""
    tokens = sample_tokens or counted.tokens
    if not tokens:
        raise UsageError(NO_TOKENS, advice=["give their number as sample_tokens=N"])
    return tokens


def _check_active(counted: Count, active_params: int | None = None, active_trainable_params: int | None = None) -> None:
    """Raise UsageError for parameters that a token uses, or trainable ones of them, that there cannot be.

    Those that the run shows are no choice.
    """
    active = counted.active_params if active_params is None else active_params
    if active_params is not None and active_params > counted.params:
        raise UsageError(f"active_params={active_params}: the model has {counted.params} parameters")
    if active_params is not None:
        used = used_experts(counted) if counted.active_params is None else None
        known = used.active_params if used else counted.active_params
        if known not in (None, active_params):
            how = f", {used.top_k} of {used.experts} experts" if used else ""
            raise UsageError(f"active_params={active_params}: a token uses {known} parameters of this model{how}")
    if active_trainable_params is None:
        return
    if active is None:
        raise UsageError("active_trainable_params are some of active_params, which this run does not show; give both")
    least, most = trainable_range(counted, active)
    if not least <= active_trainable_params <= most:
        raise UsageError(
            f"active_trainable_params={active_trainable_params}: of the {active:,} parameters that a token uses, at "
            f"least {least:,} and at most {most:,} are trainable"
        )


def _unknown_of(counted: Count, active_params: int | None = None, **_: Any) -> str:
    """Return the keywords of what the run does not show of the parameters that a token uses."""
    active = counted.active_params if active_params is None else active_params
    needed = []
    if active is None:
        found = used_experts(counted)
        active = found.active_params if found else None
        needed.append(f"active_params={'N' if active is None else active}")
    if counted.trainable_params not in (0, counted.params) and active_trainable(counted, active) is None:
        least, most = (0, counted.trainable_params) if active is None else trainable_range(counted, active)
        needed.append(f"active_trainable_params=N, the trainable part of them, {least:,} to {most:,}")
    return " and ".join(needed)


def _products_run_again(model: Any, sample: tuple, forward: dict[str, Any]) -> list[Entry] | None:
    """Return the forward products that the backward pass of a training step runs; None where no step runs here.

    A fused kernel's own gradient, which computes its scores again, is one operation and none of them.
    """
    options = {name: value for name, value in forward.items() if name in OPTIONS}
    inputs = {**(options.get("kwargs") or {}), **{name: forward[name] for name in forward.keys() - options.keys()}}
    rules = {name: options[name] for name in ("allow_unsupported", "formulas", "formula_set") if name in options}
    try:
        module, args, kwargs = resolve_call(model, sample, inputs, options.get("input_size"), options.get("dtypes"))
        while isinstance(module, DataParallel | DistributedDataParallel):
            # its gradients wait for the other processes, which may not be here
            module = module.module
        step = record(module, args, kwargs, backward=True, training=True, input_gradients=False)
        run = count_contractions(step, **rules).run
    except Exception:
        # out of memory, no backward pass, an operator without a rule: what a step runs again is unknown
        return None
    found: list[Entry] = []
    for parts in run.by_event.values():
        kinds = [kind.removesuffix(RECOMPUTE) for kind, _ in parts]
        if all(kind.endswith(RECOMPUTE) for kind, _ in parts):
            found += [Entry("", kind, product.dims) for kind, (_, product) in zip(kinds, parts, strict=True)]
    return found


RECOMPUTE = "_recompute"
"""End of the kind of a forward product that a backward pass runs."""


def _plain(value: Any) -> Any:
    """Return the number in a tensor or an array of one element, of torch, numpy or another library; else the value."""
    return value.item() if hasattr(value, "item") else value


def _number(name: str, value: Any) -> int | Fraction:
    """Return a number of any type exactly. Raises UsageError for anything else."""
    try:
        plain = _plain(value)
        return divide(Fraction(plain if not isinstance(plain, str) else None), 1)
    except (TypeError, ValueError, ArithmeticError, RuntimeError):
        raise UsageError(f"{name} takes a number, not {excerpt(value)}") from None


def _above_0(name: str, value: Any) -> int | Fraction:
    """Return a number above 0 exactly. Raises UsageError for anything else."""
    number = _number(name, value)
    if number <= 0:
        raise UsageError(f"{name} of an update are above 0, not {value}")
    return number


def _whole(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number from ``least`` on. Raises UsageError for anything else."""
    number = _number(name, value)
    if not isinstance(number, int) or number < least:
        raise UsageError(f"{name} must be at least {least} and whole, not {value}")
    return number


def _flops(size: Size | None) -> str:
    if size is None:
        return DASH
    return f"{size:,}" if isinstance(size, int) else f"{float(size):,.1f}"


def _now() -> float:
    """Return the time in seconds when everything that was launched on CUDA is done."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()
