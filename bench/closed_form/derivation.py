"""Derive the closed form of a configuration from counts at a few lengths, and prove it by counts at others."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby, zip_longest
from math import prod
from typing import Any

from headcount.bench.accounts import NoAccount
from headcount.bench.closed_form.layers import fewer_layers, order_of
from headcount.bench.closed_form.letters import (
    FIELDS,
    HEADS,
    KEYS,
    LATENTS,
    Blocks,
    Letters,
    Parts,
    scaled,
    sizes_of,
    with_expert_letters,
)
from headcount.bench.closed_form.observe import Decoder, Item, Observed, Weight, decoder_of
from headcount.bench.closed_form.solve import Lengths, Solver, polynomial
from headcount.bench.closed_form.store import LETTERS
from headcount.bench.closed_form.terms import NEW, SEQUENCES, ClosedForm, Factor, Stored, Term, masked_terms
from headcount.bench.contractions.costs import weights_read
from headcount.bench.contractions.modules import outer_paths
from headcount.bench.counting.columns import check_masks_fit
from headcount.bench.counting.module import refusals
from headcount.bench.targets.target import Target
from headcount.bench.targets.user_code import UserCodeError
from headcount.formulas import decoding, prices
from headcount.formulas.backward import training_macs
from headcount.formulas.ledger import DISPATCHED_KINDS, RESULT, Ledger, Mask

FORWARD = (Lengths(2, 7), Lengths(3, 11), Lengths(2, 19))
STEPS = (Lengths(2, 1, 1), Lengths(3, 1, 6), Lengths(2, 1, 12))
"""Lengths of the runs that give the letters; further ones reach beyond windows and chunks."""
PROVED_FORWARD, PROVED_STEP = Lengths(1, 13), Lengths(1, 1, 9)
BEYOND = 23
"""Tokens beyond every window and chunk of the run that proves a form."""
_LAYER = re.compile(r"((?:.*?\.)??)(\d+)(?=\.|$)")
_NONE = "no closed form: "
EXPERT_KINDS = ("expert_linear", "expert_bias")
FACTORS = (2, 3, 5)
"""By what fields are multiplied: the first with which the model runs."""
_RENAMED = {"b": "h"}
"""Letters of attention's products that a term has for those of a count."""


def derive(target: Target, sizes: str = "") -> ClosedForm:
    """Return the closed form of ``target``, a configuration of a causal decoder.

    ``sizes``: LETTERS for sizes in the letters that plans divide, at the paths where plans find them.

    Raises UserCodeError, with the entry, where counts at other lengths are not the form's, or for another model.
    """
    with refusals():
        decoder = decoder_of(target)
        few = fewer_layers(decoder)
        if few is not None:
            try:
                own = _Derivation(few.decoder, Multiples(few.decoder) if sizes == LETTERS else None)
                return own.proved(few.repeat(own.form()), decoder)
            except UserCodeError:
                # layers that look equal do not do the same, or there is no form, for a reason with all its layers
                pass
        own = _Derivation(decoder, Multiples(decoder) if sizes == LETTERS else None)
        return own.proved(own.form(), decoder)


class Multiples:
    """A decoder with the fields of one letter multiplied each, where it runs: key/value heads with the heads.

    Attributes:
        times: by what the fields of each letter are multiplied.
        numbers: fields and their values by letter.
    """

    def __init__(self, plain: Decoder) -> None:
        config, self._plain = plain.module.config, plain
        self.times: dict[str, int] = {}
        self._decoders: list[Decoder] = []
        self._runs: list[Observed] = []
        self.numbers = sizes_of(config)
        for letter in list(self.numbers):
            if letter == HEADS and not self._add(HEADS) and KEYS in self.numbers:
                # as many keys as heads
                self.numbers[HEADS] |= self.numbers.pop(KEYS)
                self._add(HEADS)
            elif letter != HEADS and letter in self.numbers:
                self._add(letter)
        self.sizes = Letters(self.numbers, getattr(config, "hidden_size", 0))

    def _add(self, letter: str) -> bool:
        """Add a decoder with larger fields of a letter; return whether one runs."""
        # a model width may be no multiple of twice the heads
        factors = (self.times[HEADS],) if letter == KEYS and HEADS in self.times else FACTORS
        for factor in factors:
            try:
                decoder = self._with({letter: factor, **({HEADS: factor} if letter == KEYS else {})}, self._plain)
                run = decoder.forward(FORWARD[0])
            except Exception:
                # a model refuses sizes by any error; a letter that no factor enlarges is divided by no plan
                continue
            if letter == HEADS and _head_widths(run) != _head_widths(self._plain.forward(FORWARD[0])):
                # the model's width is divided by its heads
                continue
            self.times[letter] = factor
            self._decoders.append(decoder)
            self._runs.append(run)
            return True
        return False

    def _with(self, times: Mapping[str, int], plain: Decoder) -> Decoder:
        """Return ``plain`` with the fields of letters so many times as large; the width of a head stays."""
        fields = {name: times[letter] * value for letter in times for name, value in self.numbers[letter].items()}
        config = plain.module.config
        if HEADS in times and "d_c" not in self.numbers:
            width = getattr(config, "head_dim", None)
            fields["head_dim"] = width or config.hidden_size // config.num_attention_heads
        if "d_r" in times and getattr(config, "head_dim", None) in self.numbers["d_r"].values():
            # what rotary positions turn
            fields["head_dim"] = times["d_r"] * config.head_dim
        return plain.with_fields(fields)

    def runs(self, at: Lengths) -> list[Observed]:
        """Return the run of each decoder at the first lengths of a pass."""
        return self._runs if at == FORWARD[0] else [decoder.step(at) for decoder in self._decoders]

    def kept(self, at: Lengths) -> list[list[Item]]:
        """Return what each decoder keeps in the forward pass of a training step."""
        return [decoder.kept(at) for decoder in self._decoders]

    def parts(self, plain: int, larger: Sequence[int]) -> dict[str, int]:
        """Return the part of a size that is a multiple of each letter, from the size in each decoder."""
        growth = {letter: size - plain for letter, size in zip(self.times, larger, strict=True)}
        if KEYS in growth:
            growth[KEYS] -= growth.get(HEADS, 0)
        return {letter: size // (self.times[letter] - 1) for letter, size in growth.items() if size}

    def parameter_parts(self, names: Iterable[str]) -> dict[str, int]:
        """Return the part of the elements of parameters that is a multiple of each letter."""
        plain, *larger = (sum(one.weights[name].params for name in names) for one in (self._plain, *self._decoders))
        return self.parts(plain, larger)

    def check(self, form: Ledger, decoder: Decoder, at: Lengths) -> str:
        """Return which letters the form of ``decoder`` has where that has larger fields of all of them at once.

        Raises UserCodeError, with the entry, where the count is another.
        """
        times = {letter: factor for letter, factor in self.times.items() if letter not in LATENTS}
        _compare(scaled(form, times), self._with(times, decoder).forward(at), prices.PRICES)
        return ", ".join(f"{letter} x {factor}" for letter, factor in times.items())


def _head_widths(run: Observed) -> list[int]:
    """Return the widths of the queries and keys of a run."""
    return [item.dims["i"] for item in run.products if item.kind == "scores"]


class _Derivation:
    """The runs of a decoder and the terms that they give, in letters where runs of ``multiples`` tell them."""

    def __init__(self, decoder: Decoder, multiples: Multiples | None = None) -> None:
        self._decoder, self._multiples = decoder, multiples
        self._windows, self._chunks, self._positions = decoder.windows, decoder.chunks, decoder.positions
        self._unpriced: dict[str, str] = {}
        self._order = order_of(decoder)
        self._beyond = BEYOND + max((*self._windows, *self._chunks), default=0)

    def form(self) -> ClosedForm:
        """Return the closed form that the runs give."""
        decoder = self._decoder
        chunked = [Lengths(2, self._allowed(2 * chunk + 3)) for chunk in self._chunks]
        forward, no_mask = self._with_masks(self._terms([decoder.forward(at) for at in (*FORWARD, *chunked)]))
        found = ClosedForm(
            model=decoder.notes[0],
            forward=tuple(forward),
            windows=tuple(dict.fromkeys(size for term in forward if term.mask and (size := term.mask.width))),
            positions=self._positions,
            no_mask=no_mask,
            unpriced=next(iter(self._unpriced.values()), ""),
        )
        if self._multiples:
            found = replace(found, **self._results(self._places()))
        try:
            beyond = [Lengths(3, 1, self._allowed(window + 3)) for window in self._windows]
            runs = [decoder.step(at) for at in (*STEPS, *beyond)]
            return replace(found, step=tuple(self._terms(runs)), stored=tuple(self._stored(runs)))
        except UserCodeError as error:
            return replace(found, no_step=str(error))

    def _places(self) -> list[Lengths]:
        """Return the lengths of the forward passes that prove a form."""
        return [PROVED_FORWARD, Lengths(3, self._allowed(self._beyond))]

    def proved(self, found: ClosedForm, decoder: Decoder) -> ClosedForm:
        """Return the form where it equals counts of ``decoder`` at other lengths, with equal layers written once.

        Raises UserCodeError, with the entry, where it does not. A decoder that is another one has more layers.
        """
        is_other = decoder is not self._decoder
        places = self._places()
        for at in places:
            _compare(found.of_tokens(at.B, at.T), decoder.forward(at), self._unpriced)
        if is_other and not (self._has_masks(found, decoder) and _are_kept(found, decoder, places)):
            raise UserCodeError("no closed form: layers differ in masks, or in what they keep")
        letters = ""
        if self._multiples:
            form = found.of_tokens(PROVED_FORWARD.B, PROVED_FORWARD.T)
            letters = self._multiples.check(form, decoder, PROVED_FORWARD)
        try:
            places += self._prove_step(found, decoder)
        except UserCodeError as error:
            if is_other:
                raise
            found = replace(found, step=(), stored=(), no_step=str(error))
        found = replace(
            found,
            no_training=_why_not_trained(found, decoder),
            weight_bytes=decoder.weight_bytes,
            notes=decoder.notes,
        )
        lengths = ", ".join(map(str, places))
        proof = f"{len(found.forward)} entries equal the count at {lengths}"
        if self._multiples:
            proof += f", and of the configuration with {letters}"
            found = _at_blocks(found)
        # a cache has the layers of the terms of a step
        step = _fold([*found.step, *found.stored])
        return replace(
            found,
            proof=proof,
            forward=_fold(found.forward),
            results=_fold(found.results),
            results_of_one=_fold(found.results_of_one),
            step=tuple(one for one in step if isinstance(one, Term)),
            stored=tuple(one for one in step if isinstance(one, Stored)),
        )

    def _prove_step(self, form: ClosedForm, decoder: Decoder) -> list[Lengths]:
        """Return where the form of a step equals counts of ``decoder``. Raises UserCodeError where it does not."""
        if form.no_step:
            return []
        places = [PROVED_STEP, Lengths(2, 1, self._allowed(self._beyond + 8))]
        for at in places:
            _compare(form.of_step(at.B, at.T, at.n), decoder.step(at), self._unpriced)
        return places

    def _has_masks(self, form: ClosedForm, decoder: Decoder) -> bool:
        """Return whether the masks of a form leave the MACs that those of ``decoder`` do, where they are known."""
        if form.no_mask:
            return True
        run = decoder.masked(self._masked_places()[-1])
        return run.count.causal_macs == masked_terms(form.forward, run.at.B, run.at.T).macs

    def _masked_places(self) -> list[Lengths]:
        """Return the lengths of the passes that show masks."""
        longest = self._allowed(BEYOND + max(self._windows, default=0))
        return [Lengths(1, 13), Lengths(1, longest)]

    def _results(self, places: Sequence[Lengths]) -> dict[str, tuple[Term, ...]]:
        """Return what the forward pass of a training step keeps by field of a form; empty where it has no form.

        It is proved at ``places``. One sequence has a form of its own where a run with one copies other tensors than a
        run with several.
        """
        several, alone = [at for at in places if at.B > 1], [at for at in places if at.B == 1]
        form = ClosedForm("", (), results=self._kept(FORWARD))
        if not _are_kept(form, self._decoder, several):
            return {}
        if _are_kept(form, self._decoder, alone):
            return {"results": form.results}
        form = replace(form, results_of_one=self._kept([replace(at, B=1) for at in FORWARD]))
        later = [replace(at, B=1) for at in several]
        if not _are_kept(form, self._decoder, [*alone, *later]):
            return {}
        return {"results": form.results, "results_of_one": form.results_of_one}

    def _kept(self, points: Sequence[Lengths]) -> tuple[Term, ...]:
        """Return what runs at ``points`` keep, the results of a module one by one, or their sum; none without both."""
        decoder, multiples = self._decoder, self._multiples
        solver = Solver(tuple(points), self._windows, self._chunks)
        runs = [decoder.kept(at) for at in points]
        runs += [] if multiples is None else multiples.kept(points[0])
        by_path = [_by_path(items) for items in runs]
        found: list[Term] = []
        changing: list[str] = []
        for path in dict.fromkeys(path for one in by_path for path in one):
            try:
                own: list[Term] = []
                for items in self._aligned_others([one.get(path, ()) for one in by_path], len(points)):
                    own += self._split(solver, items, {})
                found += own
            except UserCodeError:
                # a loop over tokens has other results at other lengths
                changing.append(path)
        if changing:
            sums = [] if self._chunks else self._kept_sums(changing, points)
            if not sums:
                return ()
            found += sums
        return tuple(_summed(map(_with_whole_tokens, found)))

    def _kept_sums(self, paths: Sequence[str], points: Sequence[Lengths]) -> list[Term]:
        """Return the sums of what modules keep as polynomials of tokens and sequences; none where one has fractions.

        A plan does not divide them: a recurrence runs over all tokens.
        """
        batches, tokens = sorted({at.B for at in points}), [at.T for at in points]
        runs = {at: _by_path(self._decoder.kept(at)) for B in batches for T in tokens for at in [Lengths(B, T)]}
        sequences, token = Factor("B", of=SEQUENCES), Factor("n", of=NEW)
        powers = [], [token], [token, replace(token, letter="m")]
        found = []
        for path in paths:
            sums = {at: sum(item.dims["j"] for item in run.get(path, ())) for at, run in runs.items()}
            first, more = polynomial(sums, batches, tokens)
            for of, numbers in (([], first), ([sequences], more)):
                for power, number in zip(powers, numbers, strict=True):
                    if number.denominator != 1:
                        return []
                    if number:
                        found.append(Term(path, RESULT, (*of, *power, Factor("j", int(number)))))
        return found

    def _allowed(self, tokens: int) -> int:
        """Return a length that the model has positions for, one token left for a step."""
        return tokens if self._positions is None else min(tokens, self._positions - 1)

    def _terms(self, runs: Sequence[Observed]) -> list[Term]:
        """Return the terms of runs that do the same.

        Kinds of operations without products that have no closed form are then in ``_unpriced``, with the reason.
        """
        weights = self._decoder.weights
        solver = Solver(tuple(run.at for run in runs), self._windows, self._chunks)
        hosted: dict[str, None] = {}
        every = [*runs, *(self._multiples.runs(runs[0].at) if self._multiples else ())]
        found = []
        for items in _aligned([run.products for run in every]):
            found += self._split(solver, items, hosted)
        self._unpriced.clear()
        by_place = [_by_place(run.others) for run in every]
        for place in dict.fromkeys(place for one in by_place for place in one):
            try:
                for items in self._aligned_others([one.get(place, ()) for one in by_place], len(runs)):
                    found += self._split(solver, items, hosted)
            except UserCodeError as error:
                self._unpriced.setdefault(place[1], str(error).removeprefix(_NONE))
        for name in dict.fromkeys(name for run in runs for item in run.others for name in item.weights):
            readers = [next((item for item in run.others if name in item.weights), None) for run in runs]
            if name in hosted or name not in weights or any(item is None for item in readers):
                continue
            one, items = weights[name], [replace(item, weights=(name,)) for item in readers]
            if one.share in (None, 1):
                hosted[name] = None
                found += self._parameters(name, one)
            else:
                found += self._split(solver, items, hosted)
        for name, one in weights.items():
            found += self._parameters(name, one) if name not in hosted else ()
        if any(one.share is None for one in weights.values()):
            # no parameters, of which nobody knows how many a token uses
            found.append(Term("", "elementwise", (), 1, {"j": 0}, used=-1))
        return _with_roles(sorted(_summed(found), key=lambda term: self._order.get(term.path, 0)))

    def _aligned_others(self, runs: Sequence[Sequence[Item]], number: int) -> list[tuple[Item, ...]]:
        """Return the items of a module in all runs by place; without larger decoders where these do something else."""
        try:
            return _aligned(runs)
        except UserCodeError:
            return _aligned(runs[:number])

    def _parameters(self, name: str, weight: Weight) -> list[Term]:
        """Return the terms of a parameter alone."""
        term = _parameters(name, weight)
        if not self._multiples:
            return [term]
        return list(self._multiples.sizes.split(term, Parts({}, self._multiples.parameter_parts([name]))))

    def _split(self, solver: Solver, items: Sequence[Item], hosted: dict[str, None]) -> list[Term]:
        """Return the terms of an operation of all runs, in letters where larger decoders tell them."""
        before, number = set(hosted), len(solver.points)
        term = self._term(solver, items[:number], hosted)
        if not self._multiples or len(items) == number:
            return [with_expert_letters(term)]
        of_dims = {}
        for letter, size in {**items[0].dims, "times": items[0].times}.items():
            sizes = [item.times if letter == "times" else item.dims[letter] for item in items[number:]]
            # of the number, of which the tokens are multiples
            own = next((one.number for one in term.factors if one.letter == letter and not one.of), 0)
            own = own or next((one.number for one in term.factors if one.letter == _RENAMED.get(letter)), 0)
            if own and size % own == 0:
                tokens = size // own
                name = letter if any(one.letter == letter for one in term.factors) else _RENAMED[letter]
                of_dims[name] = self._multiples.parts(own, [one // tokens for one in sizes])
        parts = Parts(of_dims, self._multiples.parameter_parts(set(hosted) - before))
        return list(self._multiples.sizes.split(term, parts))

    def _term(self, solver: Solver, items: Sequence[Item], hosted: dict[str, None]) -> Term:
        """Return the term of an operation of all runs, with the parameters that no term before has."""
        first, weights = items[0], self._decoder.weights
        keys = {"scores": "j", "values": "i"}.get(first.kind)
        factors: list[Factor] = []
        sizes = {**first.dims} if all(item.times == 1 for item in items) else {**first.dims, "times": 0}
        for letter in sizes:
            values = [item.times if letter == "times" else item.dims[letter] for item in items]
            squares = first.kind not in DISPATCHED_KINDS
            solved = solver.solve(values, keys=letter == keys, squares=squares)
            if solved is None:
                at = ", ".join(f"{size:,} at {point}" for size, point in zip(values, solver.points, strict=True))
                raise UserCodeError(f"no closed form: {letter} of {first.path or 'the model'} {first.kind} is {at}")
            *tokens, number = solved
            for factor in tokens:
                factors.append(replace(factor, letter=_free(factor.letter, letter, factors)))
                if factor.of == SEQUENCES and solver.is_step:
                    factors.append(Factor("T", of=NEW))
            if number.number != 1 or not tokens:
                factors.append(replace(number, letter=_free(letter, letter, factors)))
        own = [name for name in first.weights if name in weights and name not in hosted]
        hosted |= dict.fromkeys(own)
        return _with_weights(first, factors, [weights[name] for name in own])

    def _stored(self, runs: Sequence[Observed]) -> list[Stored]:
        """Return the tensors of the cache. Raises UserCodeError where one is neither a state nor grows by tokens."""
        found = []
        multiples = self._multiples.runs(runs[0].at) if self._multiples else []
        for place, tensors in enumerate(zip(*(run.cache for run in runs), strict=True)):
            shapes = [shape for _, shape in tensors]
            one = _stored_tensor(tensors[0][0], shapes, [run.at for run in runs], self._windows)
            if self._multiples:
                larger = [run.cache[place][1] for run in multiples]
                parts = {
                    _axis(axis): self._multiples.parts(size, [shape[axis] for shape in larger])
                    for axis, size in enumerate(shapes[0])
                    if axis and one.sizes.get(_axis(axis)) == size
                }
                one = self._multiples.sizes.stored(one, parts)
            found.append(one)
        return found

    def _with_masks(self, forward: Sequence[Term]) -> tuple[list[Term], str]:
        """Return the terms with the pairs that masks leave, or with none and the reason."""
        lengths = self._masked_places()
        try:
            runs = []
            for at in lengths:
                check_masks_fit((self._decoder.ids(at.B, at.T, "cpu"),))
                runs.append(self._decoder.masked(at))
        except NoAccount as reason:
            return list(forward), str(reason)
        except Exception as error:
            return list(forward), f"a run with weights that have no values raised {type(error).__name__}: {error}"
        masks: dict[tuple[str, str], Mask | None] = {}
        for term in forward:
            place = term.path, term.kind
            if term.kind in ("scores", "values") and place not in masks:
                items = [[item for item in run.products if (item.path, item.kind) == place] for run in runs]
                masks[place], reason = self._mask(term.path, items, [at.T for at in lengths])
                if reason:
                    return list(forward), reason
        found = [replace(term, mask=masks.get((term.path, term.kind))) for term in forward]
        for run in runs:
            macs = masked_terms(found, run.at.B, run.at.T).macs
            if run.count.causal_macs is None:
                return found, "products of two activations outside of attention may have masks"
            if macs != run.count.causal_macs:
                return list(forward), f"masks leave {run.count.causal_macs} MACs at {run.at}, the form {macs}"
        return found, ""

    def _mask(self, path: str, runs: Sequence[Sequence[Item]], lengths: Sequence[int]) -> tuple[Mask | None, str]:
        """Return the mask of an attention by its products in runs, None where it hides nothing; else the reason."""
        if not all(runs):
            return None, f"attention of {path} runs otherwise with masks that have values"
        if any(item.pairs is None for items in runs for item in items):
            return None, f"the mask of {path} is not known"
        seen = [{Fraction(*item.pairs) for item in items} for items in runs]
        if any(len(shares) > 1 for shares in seen):
            return None, f"attention of {path} has several masks"
        shares = [share for (share,) in seen]
        if all(share == 1 for share in shares):
            return None, ""
        kinds = [Mask(), *(Mask(window=size) for size in self._windows), *(Mask(chunk=size) for size in self._windows)]
        for one in kinds:
            if shares == [Fraction(one.pairs(T), T**2) for T in lengths]:
                return one, ""
        pairs = ", ".join(f"{items[0].pairs[0]:,} of {items[0].pairs[1]:,}" for items in runs)
        return None, f"the mask of {path} leaves {pairs} pairs: neither causal nor a window of the file"


def _are_kept(form: ClosedForm, decoder: Decoder, places: Sequence[Lengths]) -> bool:
    """Return whether the results of a form are what runs of ``decoder`` keep at ``places``; where it has any."""
    results = replace(form, forward=())
    for at in places if form.results else ():
        kept = sum(item.dims["j"] for item in decoder.kept(at))
        if sum(entry.size for entry in results.of_training(at.B, at.T)) != kept:
            return False
    return True


def _why_not_trained(form: ClosedForm, decoder: Decoder) -> str:
    """Return why a training step is not three forward passes; empty where it is."""
    for at in (FORWARD[0], PROVED_FORWARD):
        closed, counted = training_macs(form.of_tokens(at.B, at.T)), decoder.training_macs(at)
        if closed != counted:
            return f"a training step at {at} counts {counted:,} MACs, and three forward passes are {closed:,}"
    return ""


def _aligned(runs: Sequence[Sequence[Item]]) -> list[tuple[Item, ...]]:
    """Return the items of all runs by place. Raises UserCodeError at the first that is not in all of them."""
    for one in (runs, [_merge(items) for items in runs]):
        places = [[(item.path, item.kind, tuple(item.dims), item.weights) for item in items] for items in one]
        if all(place == places[0] for place in places):
            return list(zip(*one, strict=True))
    for items in zip_longest(*(_merge(items) for items in runs)):
        if len({item and (item.path, item.kind, tuple(item.dims)) for item in items}) > 1:
            item = next(item for item in items if item is not None)
            raise UserCodeError(
                f"no closed form: {item.path or 'the model'} {item.kind} is not in the runs of all lengths"
            )
    raise UserCodeError("no closed form: weights are read in another order at other lengths")


def _free(wanted: str, own: str, factors: Iterable[Factor]) -> str:
    """Return the letter of a size: the wanted one, or where another size has it, that of the count, or a third."""
    taken = {factor.letter for factor in factors}
    return next(letter for letter in (wanted, own, *"bmijn", *(f"{own}{n}" for n in range(9))) if letter not in taken)


def _by_path(items: Iterable[Item]) -> dict[str, list[Item]]:
    """Return items by module, in order of first appearance."""
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(item.path, []).append(item)
    return found


def _by_place(items: Iterable[Item]) -> dict[tuple[str, str], list[Item]]:
    """Return items by module and kind, in order of first appearance."""
    found: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        found.setdefault((item.path, item.kind), []).append(item)
    return found


def _merge(items: Sequence[Item]) -> list[Item]:
    """Return equal items of a module as one."""
    found: dict[tuple, Item] = {}
    for item in items:
        key = item.path, item.kind, tuple(item.dims.items())
        known = found.get(key)
        found[key] = (
            item if known is None else replace(known, times=known.times + 1, weights=known.weights + item.weights)
        )
    return list(found.values())


def _with_weights(item: Item, factors: list[Factor], weights: Sequence[Weight]) -> Term:
    """Return the term of an item that is the first to read ``weights``."""
    numbers = {factor.letter: factor.number for factor in factors if not factor.of}
    kind, letters = item.kind, {}
    if kind == "expert_linear" and "m" in numbers:
        letters["m"] = "K"
    if kind in ("scores", "values") and "b" in numbers:
        letters["b"] = "h"
    summed = {"values": ("S",), "scores": ()}.get(kind, ("i",) if kind in ("linear", "expert_linear") else ())
    weight: dict[str, int] = {}
    used = None
    if weights:
        total, share = sum(one.params for one in weights), weights[0].share
        product = numbers.get("i", 1) * numbers.get("j", 1)
        if kind == "linear" and total == product:
            weight = {letter: numbers[letter] for letter in ("i", "j") if letter in numbers}
        elif kind == "expert_linear" and letters and len(weights[0].shape) == 3 and len(weights) == 1:
            weight = {"E": weights[0].shape[0], "i": total // weights[0].shape[0]}
        elif share not in (None, 1) and len(weights) == 1:
            experts, top_k = weights[0].shape[0], share * weights[0].shape[0]
            kind = "expert_bias" if kind not in EXPERT_KINDS else kind
            factors, letters = _of_experts(factors, int(top_k), letters)
            weight = {"E": experts, "j" if kind == "expert_bias" else "i": total // experts}
        elif kind == "embedding":
            weight = {"V": weights[0].shape[0], "d_m": weights[0].shape[1]}
        else:
            weight = {"j": total}
    factors = [replace(one, letter=letters.get(one.letter, one.letter)) for one in factors]
    trainable = all(one.trainable for one in weights)
    return Term(item.path, kind, tuple(factors), 1, weight, trainable, summed, used=used)


def _of_experts(factors: list[Factor], top_k: int, letters: dict[str, str]) -> tuple[list[Factor], dict[str, str]]:
    """Return the factors with the letter K for the experts of a token, split off a number that has it."""
    found = []
    for factor in factors:
        if not factor.of and factor.number % top_k == 0 and not any(one.letter == "K" for one in found):
            found.append(Factor("K", top_k))
            if factor.number != top_k:
                found.append(replace(factor, number=factor.number // top_k))
        else:
            found.append(factor)
    return found, {letter: to for letter, to in letters.items() if to != "K"}


def _parameters(name: str, weight: Weight) -> Term:
    """Return the term of a parameter alone, which no operation with a price is the first to read."""
    share = -1 if weight.share is None else int(weight.share * weight.params) if weight.is_used else 0
    path = name.rpartition(".")[0]
    is_read = weight.is_read
    return Term(path, "elementwise", (), 1, {"j": weight.params}, weight.trainable, used=share, is_read=is_read)


def _with_roles(terms: Sequence[Term]) -> list[Term]:
    """Return the terms with the paths by which rules tell attention, feed-forward blocks and routers apart."""
    mixers = {term.path for term in terms if term.kind in ("scores", "values")}
    others = {term.path for term in terms if term.kind in ("contraction", "conv")} - mixers
    experts = {term.path: term.weight["E"] for term in terms if "E" in term.weight and term.kind == "expert_linear"}
    tables = {term.weight["V"] for term in terms if term.kind == "embedding" and "V" in term.weight}
    # more rows than words may have a table of positions, which no layer returns to
    words = max(tables & {_outputs(term) for term in terms if term.kind == "linear"} or tables, default=0)
    found = []
    for term in terms:
        around = set(outer_paths(term.path)) - {""}
        outputs = _outputs(term)
        role = ""
        if term.kind == "linear" and outputs == words and not around & mixers:
            factors = [replace(one, letter="V") if one.letter == "j" else one for one in term.factors]
            weight = {"V" if letter == "j" else letter: size for letter, size in term.weight.items()}
            term = replace(term, factors=tuple(factors), weight=weight)
        elif term.kind == "embedding":
            is_table = term.weight.get("V") == words
            weight = term.weight if is_table else {"P" if k == "V" else k: size for k, size in term.weight.items()}
            term = replace(term, weight=weight)
        elif around & mixers:
            role = "self_attn"
        elif term.kind == "linear" and any(_is_router(term.path, outputs, *one) for one in experts.items()):
            role = "feed_forward.router"
        elif term.kind in ("linear", "expert_linear") and not around & others:
            role = "feed_forward"
        found.append(replace(term, role=role))
    return found


def _outputs(term: Term) -> int | None:
    """Return the outputs of a product, where one letter has them."""
    return next((one.number for one in term.factors if one.letter in ("j", "V") and not one.of), None)


def _is_router(path: str, outputs: int | None, experts: str, number: int) -> bool:
    """Return whether a linear layer scores the experts: it has as many outputs, in a module around them."""
    return outputs == number and path.rpartition(".")[0] in outer_paths(experts)


def _stored_tensor(
    path: str, shapes: Sequence[tuple[int, ...]], points: Sequence[Lengths], windows: Sequence[int]
) -> Stored:
    """Return the tensor of a cache by its shapes after ``n`` tokens each."""
    sizes: dict[str, int] = {}
    kept: int | None = 0
    for axis, values in enumerate(zip(*shapes, strict=True)):
        if list(values) == [one.B for one in points] and axis == 0:
            continue
        if len(set(values)) == 1:
            sizes[_axis(axis)] = sizes.get(_axis(axis), 1) * values[0]
            continue
        fits = [None] * (list(values) == [one.n for one in points])
        fits += [w for w in windows if list(values) == [min(one.n, w - 1) for one in points]]
        if not fits or kept != 0:
            raise UserCodeError(f"no closed form: the cache of {path or 'the model'} has the shapes {shapes}")
        kept = fits[0]
    return Stored(path, sizes, kept != 0, kept or None)


def _axis(axis: int) -> str:
    """Return the letter of a dimension of a cache."""
    return "bmij"[min(axis, 3)]


def _at_blocks(form: ClosedForm) -> ClosedForm:
    """Return the form with the paths where plans find blocks."""
    blocks = Blocks(form.forward)
    return replace(
        form,
        forward=tuple(map(blocks.place, form.forward)),
        results=tuple(map(blocks.place, form.results)),
        results_of_one=tuple(map(blocks.place, form.results_of_one)),
        step=tuple(map(blocks.place, form.step)),
        stored=tuple(map(blocks.place_cache, form.stored)),
    )


def _compare(ledger: Ledger, run: Observed, unpriced: Collection[str]) -> None:
    """Raise UserCodeError at the first entry at which a ledger is not the count of ``run``.

    ``unpriced``: kinds of operations without products that the ledger does not have.
    """
    counted: dict[tuple[str, str], int] = {}
    for item in run.products:
        key = item.path, item.kind
        counted[key] = counted.get(key, 0) + item.times * prod(item.dims.values())
    closed = ledger.select(lambda entry: entry.macs or entry.kind == "embedding").group(
        lambda entry: (entry.path, entry.kind), of="size"
    )
    for key in dict.fromkeys((*closed, *counted)):
        a, b = closed.get(key, 0), counted.get(key, 0)
        if a != b:
            path, kind = key
            raise UserCodeError(
                f"no closed form: {path or 'the model'} {kind} counts {b:,} at {run.at}, the form {a:,}"
            )
    count, active = run.count, run.count.active_params
    sums = {
        "parameters": (ledger.params, count.params),
        # not every run shows how many experts a token uses
        "active parameters": (ledger.active_params, ledger.active_params if active is None else active),
        "weights read": (decoding.step_weights(ledger), weights_read(count.trace)),
    }
    flops = prices.other_flops(ledger, prices.PRICES)
    # an expert's bias is added as any other number
    for name, kinds in {**prices.GROUPS, "other operations": tuple(flops)}.items():
        if not {*kinds} & {kind.removeprefix("expert_") for kind in unpriced}:
            sums[name] = tuple(sum(of[kind] for kind in kinds) for of in (flops, count.other_flops))
    if run.at.n:
        sums["cache"] = (decoding.cache_elements(ledger), run.after)
    for name, (a, b) in sums.items():
        if a != b:
            raise UserCodeError(f"no closed form: {name} are {b} at {run.at}, the form gives {a}")


def _fold(terms: Iterable[Any]) -> tuple[Any, ...]:
    """Return the terms with equal neighbouring layers written once: layers.0-3, or layers.* for all of them."""
    by_layer: dict[tuple[str, str], list[Any]] = {}
    for term in terms:
        match = _LAYER.match(term.path)
        by_layer.setdefault((match[1], match[2]) if match else (term.path, ""), []).append(term)
    signed = [
        (prefix, index, [replace(term, path=term.path[len(prefix) + len(index) :]) for term in own])
        for (prefix, index), own in by_layer.items()
    ]
    number = Counter(prefix for prefix, index, _ in signed if index)
    found: list[Any] = []
    for (prefix, _), run in groupby(signed, key=lambda one: (one[0], one[2])):
        layers = list(run)
        indices, own = [index for _, index, _ in layers], layers[0][2]
        whole = len(layers) > 1 and len(layers) == number[prefix]
        index = "*" if whole else indices[0] if len(layers) == 1 else f"{indices[0]}-{indices[-1]}"
        found += [replace(term, path=f"{prefix}{index}{term.path}", times=term.times * len(layers)) for term in own]
    return tuple(found)


def _summed(terms: Iterable[Term]) -> list[Term]:
    """Return the operations without products of a module, of one kind and as many tokens, as one term."""
    found: dict[tuple, Term] = {}
    for place, term in enumerate(terms):
        tokens = tuple(factor for factor in term.factors if _is_kept(factor))
        is_alone = (
            term.kind in DISPATCHED_KINDS or term.kind == "embedding" or term.used is not None or "E" in term.weight
        )
        key = (place,) if is_alone else (term.path, term.kind, tokens, term.trainable)
        if key not in found:
            found[key] = term
            continue
        known = found[key]
        number = sum(prod(one.number for one in of.factors if not _is_kept(one)) for of in (known, term))
        factors = (*tokens, Factor("j", number))
        found[key] = replace(known, factors=factors, weight=_sum_weights(known.weight, term.weight))
    return list(found.values())


def _with_whole_tokens(term: Term) -> Term:
    """Return the term with a letter of its own for tokens and some more, which no plan divides."""
    factors = (replace(one, letter=f"{one.letter}_{one.shift}") if one.shift else one for one in term.factors)
    return replace(term, factors=tuple(factors))


def _is_kept(factor: Factor) -> bool:
    """Return whether a sum of operations has the factor: tokens, and letters of the configuration."""
    return bool(factor.of) or factor.letter in (*FIELDS, "d_m")


def _sum_weights(a: Mapping[str, int], b: Mapping[str, int]) -> Mapping[str, int]:
    """Return the sizes of two weights as one, in letters that both have."""
    if not a or not b:
        return a or b
    shared = {letter: size for letter, size in a.items() if letter != "j" and b.get(letter) == size}
    total, each = prod(a.values()) + prod(b.values()), prod(shared.values())
    return {**shared, "j": total // each}
