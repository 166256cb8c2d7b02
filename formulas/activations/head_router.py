"""What the router of MoH's heads holds, moment after moment (see formulas/activations.py and formulas/moh.py)."""

from dataclasses import dataclass

from headcount.formulas.activations.schedule import INDEX_BYTES, Schedule, weight_gradient


@dataclass(frozen=True)
class HeadRouter:
    """Two-stage routing of h heads, s of them shared and r of the other E = h - s selected for each of B T tokens."""

    tokens: int
    d_m: int
    h: int
    s: int
    r: int
    d_h: int
    by_norm: bool
    """Heads are scored by the norms of their queries, without matrices."""
    released: bool
    """Selected probabilities are renormalised."""
    every: bool = False
    """Scores by norm pass their gradient to every head, so that there are gates of all."""

    @property
    def gated(self) -> int:
        """Heads that have a gate for each token."""
        return self.h if self.every and self.by_norm and self.r else self.s + self.r

    @property
    def E(self) -> int:
        """Heads to choose from."""
        return self.h - self.s

    @property
    def weighs_shared(self) -> bool:
        """There are several shared heads, and a matrix for them."""
        return self.s > 1 and not self.by_norm

    @property
    def weighs_groups(self) -> bool:
        """There are two groups of heads, and a matrix for them."""
        return self.s > 0 and self.r > 0 and not self.by_norm

    @property
    def learns(self) -> bool:
        """Gates have a gradient: some are not constant."""
        return self.r > 0 or self.weighs_shared

    def forward(self, run: Schedule, *, training: bool = False) -> None:
        """From tokens, or ``q``, to ``indices`` and ``gates``; in training, what the backward needs stays too."""
        tokens, s, r = self.tokens, self.s, self.r
        # a constant gate of 1, expanded wherever one is needed
        run.take(one=1)
        gone = ["one"]
        if s:
            run.take_bytes("shared_indices", s * INDEX_BYTES)
            gone.append("shared_indices")
        if self.weighs_shared:
            gone += self._softmax(run, "shared", s, training)
        if r:
            gone += self._selection(run, training)
        if self.weighs_groups:
            gone += self._softmax(run, "group", 2, training)
            # gates before they are weighed by group: the shared ones go with the list, a constant stays
            run.take(weighed_shared=tokens * s)
            run.take(weighed_routed=tokens * r)
            if training:
                # the products need both factors again
                kept = {"shared_gates", "group_gates", "routed_gates", *(["one"] if s == 1 else [])}
                gone = [name for name in gone if name not in kept]
            elif self.weighs_shared:
                run.drop("shared_gates")
                gone.remove("shared_gates")
            gone += ["weighed_shared", "weighed_routed"]
        run.take_bytes("indices", tokens * self.gated * INDEX_BYTES)
        run.take(gates=tokens * self.gated)
        run.drop(*gone)

    def _softmax(self, run: Schedule, name: str, width: int, training: bool) -> list[str]:
        """Probabilities over ``width`` heads or groups, times a constant; what goes when the router returns."""
        size = self.tokens * width
        run.take(**{f"{name}_logits": size})
        run.derive(f"{name}_logits", **{f"{name}_probs": size})
        run.take(**{f"{name}_gates": size})
        if not training:
            run.drop(f"{name}_probs")
        return [f"{name}_gates"]

    def _selection(self, run: Schedule, training: bool) -> list[str]:
        tokens, E, r = self.tokens, self.E, self.r
        if self.by_norm:
            run.take(norms=tokens * E)
            run.take(deviation=tokens)
            run.take_bytes("equal", tokens)
            run.take(divisor=tokens)
            if not training:
                run.drop("equal")
        run.take(logits=tokens * E)
        if self.by_norm and not training:
            run.drop("divisor", "deviation", "norms")
        run.take(probs=tokens * E, top=tokens * r)
        run.take_bytes("selected", tokens * r * INDEX_BYTES)
        run.take_bytes("routed_indices", tokens * r * INDEX_BYTES)
        # the routing is recorded in training
        gone = ["routed_indices"] if training else ["routed_indices", "logits", "probs", "selected"]
        if self.by_norm and self.every:
            run.take_bytes("every_index", E * INDEX_BYTES)
            run.drop("routed_indices")
            run.take(no_choice=tokens * E)
            run.derive("no_choice", chosen=tokens * E)
            run.take(through=tokens * E)
            run.take(routed_gates=tokens * E)
            run.drop("through", "chosen")
            gone[0] = "every_index"
        elif self.by_norm:
            run.take(raised=tokens * r)
            run.derive("raised", routed_gates=tokens * r)
        elif self.released:
            run.take(total=tokens, ratio=tokens * r)
            if not training:
                run.drop("total")
            run.derive("ratio", routed_gates=tokens * r)
        else:
            return gone if training else [*gone, "top"]
        if not training:
            run.drop("top")
        return [*gone, "routed_gates"]

    def backward(self, run: Schedule) -> None:
        """From ``d_gates`` to the gradients of the matrices, or, by norm, to ``d_norm_queries`` and ``d_scaled``."""
        tokens, s, r = self.tokens, self.s, self.r
        routed, shared = "d_gates", "d_gates"
        if self.weighs_groups:
            routed, shared = "d_routed", "d_shared"
            self._weighed(run, "routed", r)
            # a single shared head's gate is constant, and needs no gradient that the group's weight is a factor of
            run.drop(*(["routed_gates"] if self.released else []), *([] if self.weighs_shared else ["group_gates"]))
            run.derive("d_group_routed", d_group_1=tokens * 2)
            if self.weighs_shared:
                self._weighed(run, "shared", s)
                run.drop("d_gates", "shared_gates", "group_gates")
            else:
                run.take(d_group_shared=tokens)
                run.drop("d_gates", "one")
            run.derive("d_group_shared", d_group_0=tokens * 2)
            run.take(d_group_gates=tokens * 2)
            run.drop("d_group_0", "d_group_1")
            self._softmax_backward(run, "group", 2, "d_group_gates")
        if r:
            self._selection_backward(run, routed)
        if self.weighs_shared:
            self._softmax_backward(run, "shared", s, shared)

    def _weighed(self, run: Schedule, name: str, width: int) -> None:
        """The gradients of gates and of their group's weight."""
        run.take(**{f"d_{name}": self.tokens * width})
        if width == 1:
            run.take(**{f"d_group_{name}": self.tokens})
        else:
            run.take(d_products=self.tokens * width)
            run.derive("d_products", **{f"d_group_{name}": self.tokens})

    def _softmax_backward(self, run: Schedule, name: str, width: int, gradient: str) -> None:
        size = self.tokens * width
        run.derive(gradient, d_probs=size)
        run.take(d_logits=size)
        run.drop("d_probs", f"{name}_probs")
        weight_gradient(run, f"router_{name}_proj", "d_logits", width * self.d_m)

    def _selection_backward(self, run: Schedule, gradient: str) -> None:
        tokens, E, r = self.tokens, self.E, self.r
        if not self.by_norm and self.released:
            run.derive(gradient, d_ratio=tokens * r)
            self._quotient(run, "d_ratio", "total", r)
            # each selected probability is in the sum, too
            run.take(d_top=tokens * r)
            run.drop("d_dividend", "d_total")
            gradient = "d_top"
        if self.by_norm and self.every:
            run.derive(gradient, d_logits=tokens * E)
        else:
            run.take(no_probs=tokens * E, d_probs=tokens * E)
            run.drop("no_probs", gradient)
            run.derive("d_probs", d_logits=tokens * E)
        if self.by_norm:
            self._norms_backward(run)
        else:
            weight_gradient(run, "router_routed_proj", "d_logits", E * self.d_m)

    def _quotient(self, run: Schedule, output: str, divisor: str, width: int) -> None:
        """The gradients of a dividend and of its divisor, which is one for ``width`` of them."""
        size, summed = self.tokens * width, width > 1
        run.take(quotient=size, second_quotient=size, negative=size)
        run.take(**{"d_divisors" if summed else f"d_{divisor}": size})
        run.drop("negative", "second_quotient", "quotient")
        run.take(d_dividend=size)
        if summed:
            run.derive("d_divisors", **{f"d_{divisor}": self.tokens})
        run.drop(output, divisor)

    def _norms_backward(self, run: Schedule) -> None:
        tokens, size, wide = self.tokens, self.tokens * self.E, self.tokens * self.E * self.d_h
        self._quotient(run, "d_logits", "divisor", self.E)
        run.derive("d_divisor", d_deviation=tokens)
        run.drop("equal")
        run.take(scaled_deviation=tokens, per_deviation=tokens)
        run.take_bytes("no_deviation", tokens)
        run.drop("no_deviation", "scaled_deviation")
        run.take(mean=tokens, centred=size, d_mean=tokens, d_of_deviation=size)
        run.drop("d_mean", "centred", "mean", "per_deviation", "d_deviation", "deviation")
        run.take(d_norms=size)
        run.drop("d_dividend", "d_of_deviation")
        run.take(directions=wide)
        run.take_bytes("no_norm", size)
        run.take(d_routed_queries=wide)
        run.drop("no_norm", "directions", "d_norms", "norms", "q")
        if self.s:
            run.derive("d_routed_queries", d_of_norms=tokens * self.h * self.d_h)
        run.take(d_queries=tokens * self.h * self.d_h)
        run.drop("d_scaled", "d_of_norms" if self.s else "d_routed_queries")
