"""How the numbers come about, in words: conventions, modules of others, the clock, formats and exit codes."""

from importlib.resources import files

from headcount.bench.render import SCHEMA_VERSION
from headcount.bench.table import Column
from headcount.reports import markdown
from headcount.reports.facts import Facts

CONVENTIONS = """\
MACs everywhere; one multiply-accumulate is two FLOPs. Counts are integers and are compared with `==`. **Parameters**
are all of a model's, tied ones once. **Active parameters** leave out the weights and biases of the E - K experts that
a token does not use. An unknown value is a dash, never 0.

Every row of a published table is computed under **one rule per table**, counted, and judged: *reproduced* where the
rule prints the paper's number; *explained* where it does not, but named ledger entries close the gap, and the sum is
shown; *no rule* where no rule that bills each contraction a whole number of times can print the row, and the argument
is shown; *unexplained* where neither is so; *nothing printed* where the paper leaves the cell empty.

By default each counter runs where it is right: ptflops' `pytorch` backend and DeepSpeed's profiler on cpu (on meta
they bill biased linear layers twice), the others on meta, where no memory is needed, and so do both with a model that
is too large. `--device` overrides. The hidden width of MAE's gate is a field, `gate_width`; the MoA paper does not
state it.

A preset is a model as it is counted, without dropout; `--set recipe=paper` gives those of the MoA paper the dropouts
of its Table 6, and `--set gates=printed`, `released` or `selected` chooses how MoA weighs a token's experts. MoH
stands as released (every head computed, then gated) and as the ideal that skips what is not selected. A grid row
shows Eq. 18 (or 19) as printed, what it leaves out by name, the exact count, every counter, parameters, and the ratio
to MHA of the same model width and of the same inner width."""

MODULES = """\
The right count does not depend on how a layer is written: products are found among the dispatched operations, fused
attention, grouped products and FlexAttention included (the whole square of scores, whatever a mask leaves out), and
an operation that nobody knows makes the run fail with its shapes and module path (`--formula OPERATOR=EXPRESSION`
counts it, `--allow-uncounted` lists it). A product written elementwise and summed, `(a * b).sum(-1)`, is named beside
the count; `--elementwise include` makes it a part, `refuse` an error. Data that leaves for numpy, another thread or a
kernel that was handed an address, and comes back, is refused by name; work that leaves no such sign, a reference to a
function that turns dispatching off, is not seen. Beside it stands every counter's reading, and for each unit of
difference the call that makes it, with the place in the tool's source. `make` runs in a process that has given up our
package names, so a project with its own `models/` or `bench/` works.

`hc.convert(model, shared=16, routed=8)` makes mixture-of-head attention of a dense LLaMA, DiT, masked language model
or encoder-decoder, as the MoH paper continues LLaMA3-8B: no tensor changes, and with every head on it is the same
function. `hc.load_hugging_face(config, state_dict)` reads checkpoints of LLaMA and JetMoE by renaming their tensors.
`torch.compile(model, fullgraph=True)` traces every arm but `grouped` and `ragged`, whose segments have sizes that the
host reads; a layer's arms say so in `config.implementations`, and a test holds them to it on the CPU."""

CLOCK = """\
`bench.latency` checks each arm against the float64 reference before it times it: on the arm's own rounded parameters
and choices of experts, in the timed call and, on a GPU, by a replay on other inputs. An arm may be twice as far off
as the plain reference in its own type; one that fails prints no time but its reason. The arms of a cell run
interleaved in one process, in ABBA blocks on random data with inputs rotated past the cache, and the same code timed
twice gives the noise floor. A ratio is called faster or slower only where its bootstrap interval excludes 1 and it
exceeds that noise. On a GPU it is of replayed CUDA graphs where both arms have one, else of wall time. Fewer than 20
blocks are a smoke test and enter no document. Beside each time stand the exact MACs, the share of the peak rate
measured in the same process, and the roofline floor.

MoA runs by `reference` (each token gathers its experts' weights; what the counters count), `gathered`, `dense-all`
(all experts as two dense products: nothing is sorted or gathered), `grouped` (one stable sort, grouped products, no
host synchronisation), `loop` (the released code's algorithm) or `triton` (kernels of our own). MoH runs by
`reference`, `fused`, `ragged`, which packs the queries that selected a head and skips the rest, or `triton`. Other
attention runs by `reference`, and by `fused` where it needs no windows. `auto` picks by a stated rule, logs it once,
and the record keeps what ran. All of them equal the reference, forward and backward."""

FORMATS = """\
Tables go to stdout and everything else to stderr. `--format json` is one object with `schema_version`, now {version},
and `tables`; each table has `name`, `title`, `below` and `rows` of raw integers, under names that end in their unit.
A row of `--table`, `--preset` or `--grid` has `preset`, `counter`, `device`, `input`, `macs`, `params`,
`active_params` and the `ledger`. CSV is one table a file with the keys of its columns. LaTeX needs booktabs.

A ledger entry has `path` (the module), `kind` (what is done), `dims` (letters and their sizes), `times`, `weight`
(the letters of its parameters), and the `size`, `macs`, `params` and `active_params` that follow from them."""

LOCK = """\
`headcount lock --module model.py:make -o macs.lock` counts a module and writes every contraction and the parameters by
name. `headcount lock --check macs.lock` counts again and exits 1 with what changed. Integers are equal or they are
not: there is no threshold to choose. The fixture `macs_lock` does the same in pytest. `headcount lock --workflow`
prints this workflow for GitHub Actions, which comments on a pull request what it does to the cost:"""

EXIT_CODES = {
    0: "fine",
    1: "a count, a verdict or a generated file disagrees",
    2: "wrong usage, and the message names the valid choices",
    3: "this machine cannot: no CUDA device with `--device cuda`, a package that is missing",
    130: "interrupted",
    129: "ended by SIGHUP, of a terminal that was closed",
    143: "ended by SIGTERM",
}


def conventions(facts: Facts) -> str:
    """What is billed and how it is judged."""
    return CONVENTIONS


def modules(facts: Facts) -> str:
    """How modules of others are counted, and what models can become."""
    return MODULES


def clock(facts: Facts) -> str:
    """How times are taken."""
    return CLOCK


def formats(facts: Facts) -> str:
    """JSON and the other formats."""
    return FORMATS.format(version=SCHEMA_VERSION)


def lock(facts: Facts) -> str:
    """How a module's cost is held, with the workflow."""
    workflow = files("headcount.bench.lock").joinpath("workflow.yml").read_text("utf-8")
    return f"{LOCK}\n\n```yaml\n{workflow}```"


def exit_codes(facts: Facts) -> str:
    """What a command ends with."""
    rows = [{"code": str(code), "meaning": meaning} for code, meaning in EXIT_CODES.items()]
    return markdown.table([Column("code", "exit code"), Column("meaning", "meaning")], rows)
