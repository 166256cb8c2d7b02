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
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from headcount.bench.api import count_macs
from headcount.bench.counting.result import Count
from headcount.bench.errors import EnvironmentMissing, UsageError, require_package
from headcount.bench.hardware import parse_peak
from headcount.bench.training_flops import find_rule, flops_per_token, model_rule, utilisation


class MFU:
    """Model FLOPs utilisation of training ``model`` under a rule; its forward pass is counted once, on ``sample``.

    ``flops_per_token`` and ``hardware_flops_per_token`` are the rule's, without and with recomputation. ``value`` is
    the share of the last update, ``average`` that of all, ``metrics`` a dict for a logger; ``tokens`` and ``seconds``
    are totals.

    Of frozen parameters (``requires_grad=False``, as LoRA leaves them) the FLOPs of their gradients are not counted.

    Args:
        model: what hc.count takes, or the result of hc.count.
        sample: inputs as long as in training, as hc.count takes them; keywords too: ``input_ids=ids``.
        peak: of one device, dense: a card, "H100 SXM bf16", in bf16 where no dtype is given, or FLOP/s, 989e12 or
            "989T bf16".
        rule: a rule of headcount table --list; of mixtures, those of N take the active parameters.
        devices: devices that share the tokens of an update.
        sample_tokens: tokens of ``sample`` (default: elements of the first integer tensor, or B T of B x T x width).
        active_params: parameters that a token uses (default: those of the count, which may be unknown of a mixture).

    Raises:
        UsageError: for an unknown peak or rule, a rule that needs more than a run shows, or unknown tokens.
    """

    def __init__(
        self,
        model: Any,
        *sample: Any,
        peak: str | float,
        rule: str = "palm",
        devices: int = 1,
        sample_tokens: int | None = None,
        active_params: int | None = None,
        **forward: Any,
    ) -> None:
        self.peak, self.rule, self.devices = parse_peak(peak), find_rule(rule), devices
        if devices < 1:
            raise UsageError(f"devices must be at least 1, not {devices}")
        if active_params is not None and active_params < 1:
            raise UsageError(f"active_params must be at least 1, not {active_params}")
        first = next((leaf for leaf in tree_leaves((sample, forward)) if isinstance(leaf, Tensor)), None)
        self._sequences = 1 if first is None or first.ndim < 2 else len(first)
        self._sample_tokens = sample_tokens or _tokens(first)
        count = model if isinstance(model, Count) else count_macs(model, *sample, **forward)
        how = {"tokens": self._sample_tokens, "active_params": active_params}
        self.flops_per_token = flops_per_token(count, model_rule(self.rule), **how)
        self.hardware_flops_per_token = flops_per_token(count, self.rule, **how)
        self.tokens, self.seconds, self.value = 0, 0.0, 0.0
        self.metrics: dict[str, float] = {}

    def update(self, tokens: int, seconds: float) -> float:
        """Return the utilisation, as a share of 1, of ``tokens`` tokens that all devices trained on in ``seconds``."""
        if tokens < 0 or seconds <= 0:
            raise UsageError(f"an update has tokens from 0 on and seconds above 0, not {tokens} and {seconds}")
        self.tokens, self.seconds = self.tokens + tokens, self.seconds + seconds
        self.value = self._share(tokens, seconds, self.flops_per_token)
        self.metrics = {
            "mfu": self.value,
            "tokens_per_s": tokens / seconds,
            "model_tflops_per_s": self.value * self.peak.flops_per_s / 1e12,
        }
        if self.hardware_flops_per_token != self.flops_per_token:
            self.metrics["hfu"] = self._share(tokens, seconds, self.hardware_flops_per_token)
        return self.value

    @contextmanager
    def step(self, tokens: int) -> Iterator["MFU"]:
        """Time the block as a training step over ``tokens`` tokens and call ``update``.

        Synchronises CUDA before and after the block.
        """
        started = _now()
        yield self
        self.update(tokens, _now() - started)

    @property
    def average(self) -> float:
        """The utilisation of all updates together."""
        return self._share(self.tokens, self.seconds, self.flops_per_token) if self.seconds else 0.0

    def _share(self, tokens: int, seconds: float, flops: Any) -> float:
        return float(utilisation(flops, tokens, seconds, self.devices, self.peak))

    def __str__(self) -> str:
        return f"MFU {100 * self.value:.2f} % by rule {self.rule.name}, peak {self.peak}"

    __repr__ = __str__

    def _batch_tokens(self, sequences: int) -> int:
        return sequences * self._sample_tokens // self._sequences

    def hugging_face_callback(self) -> Any:
        """Return a callback for transformers.Trainer that adds ``metrics`` to what it logs.

        Tokens are those that Trainer counts (include_num_input_tokens_seen), else sequences as long as the sample's.
        Each process updates for its own device, so ``devices`` stays 1 in data parallel training. A logger that runs
        before it, as one of report_to, gets the metrics if the callback is the first of trainer.callback_handler.
        """
        require_package("transformers")
        mfu = self

        class MFUCallback(import_module("transformers").TrainerCallback):
            """Updates after each optimizer step."""

            def on_step_begin(self, args, state, control, **kwargs):
                self.started, self.seen = _now(), state.num_input_tokens_seen

            def on_step_end(self, args, state, control, **kwargs):
                tokens = (state.num_input_tokens_seen - self.seen) // args.world_size
                sequences = args.train_batch_size * args.gradient_accumulation_steps
                mfu.update(tokens or mfu._batch_tokens(sequences), _now() - self.started)

            def on_log(self, args, state, control, logs=None, **kwargs):
                if logs and "loss" in logs:
                    logs.update(mfu.metrics)
                    state.log_history[-1].update(mfu.metrics)

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


def _tokens(first: Tensor | None) -> int:
    """Return the tokens of the first tensor of the inputs. Raises UsageError where they are unknown."""
    if first is not None and not first.is_floating_point():
        return first.numel()
    if first is not None and first.ndim == 3:
        return first.shape[0] * first.shape[1]
    raise UsageError("the sample's first tensor is neither ids nor B x T x width; give its tokens as sample_tokens=N")


def _now() -> float:
    """Return the time in seconds when everything that was launched on CUDA is done."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()
