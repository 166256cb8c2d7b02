"""``hc.summary``: a count, or the parameters of a module that does not run, as torchinfo's users type it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from headcount.bench.api.count import OPTIONS, InputsMissing, count_macs
from headcount.bench.contractions import module_tree
from headcount.bench.contractions.modules import ModuleRecord, parameter_records
from headcount.bench.counting.keywords import UnknownKeywords, ignored_keywords
from headcount.bench.counting.other_tools import attribute_error
from headcount.bench.counting.result import MODULES, Count, check_rows, module_frame
from headcount.bench.output import notebook
from headcount.bench.result import Table
from headcount.formulas.ledger import Ledger

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Parameters:
    """The parameters of a module that did not run, by module; it prints as a tree of ``depth`` levels."""

    name: str
    modules: tuple[ModuleRecord, ...]
    depth: int | None = 3

    @property
    def params(self) -> int:
        """All parameters, each tensor once."""
        return sum(one.params for one in self.modules)

    @property
    def trainable_params(self) -> int:
        """Parameters that require gradients."""
        return sum(one.trainable_params for one in self.modules)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError: what a count has needs inputs."""
            if not name.startswith("_") and name in (*dir(Count), *Count.__dataclass_fields__):
                raise AttributeError(
                    f"{type(self).__name__} has no attribute {name!r}: the module did not run; what hc.count(model, x) "
                    f"returns has .{name}"
                )
            raise attribute_error(type(self), name)

    def to_dataframe(self, rows: str = MODULES) -> "pandas.DataFrame":
        """Return a row for each module, as that of a count: without outputs and MACs. ValueError for other rows."""
        check_rows(rows, [MODULES])
        return module_frame(Ledger(()), self.modules)

    def _table(self, depth: int | None) -> Table[module_tree.ModuleRow]:
        return module_tree.parameters_table(self.name, self.modules, depth)

    def __str__(self) -> str:
        return module_tree.text(self._table(self.depth))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return notebook.page(self._table(None), self.depth)


COLUMNS = (
    "input_size", "output_size", "num_params", "params_percent", "kernel_size", "groups", "mult_adds", "trainable",
)  # fmt: skip
"""Columns of torchinfo."""
ROW_SETTINGS = ("ascii_only", "depth", "hide_recursive_layers", "var_names")
"""What torchinfo prints in a row."""
MODES = ("train", "eval", "same")
"""Modes of torchinfo in which a module runs; the last is that of the module."""


def summary(
    model: Any,
    *inputs: Any,
    depth: int | None = 3,
    input_data: Any = None,
    verbose: int | None = 1,
    col_names: Any = None,
    col_width: int | None = None,
    row_settings: Any = None,
    **options: Any,
) -> Count | Parameters:
    """Count as ``count_macs`` does; the result prints as a tree of ``depth`` levels, all of them for None.

    A module without inputs does not run: its parameters are printed. Of torchinfo's options, ``input_data`` are the
    inputs, ``device`` must be that of the weights, ``mode`` is "train", "eval" or "same", and ``verbose``,
    ``col_names``, ``col_width``, ``row_settings`` and ``cache_forward_pass`` change nothing, as only the result prints,
    with every column. Raises TypeError for its other options, ValueError for values that they do not have.
    """
    if depth is not None and (not isinstance(depth, Integral) or isinstance(depth, bool) or depth < 0):
        raise ValueError(f"depth={depth!r}: give a number of levels from 0 on, or None for all of them")
    _check_choices("verbose", [verbose], (0, 1, 2, None))
    _check_choices("col_names", col_names, COLUMNS)
    _check_choices("row_settings", row_settings, ROW_SETTINGS)
    if col_width is not None and not isinstance(col_width, Integral):
        raise ValueError(f"col_width={col_width!r}: give a number of characters")
    if _is_on(model, options.get("device")):
        del options["device"]
    options = _without_torchinfo(model, options)
    if input_data is not None:
        inputs = (*inputs, *(input_data if isinstance(input_data, list | tuple) else [input_data]))
    try:
        return count_macs(model, *inputs, **options).with_values(depth=depth)
    except UnknownKeywords as error:
        raise error.also_of(summary) from None
    except InputsMissing:
        return Parameters(type(model).__name__, tuple(parameter_records(model)), depth)


def _check_choices(name: str, values: Any, known: Sequence[Any]) -> None:
    """Raise ValueError for a value, or one of several, that is not ``known``; None is no value."""
    several = values if isinstance(values, list | tuple | set | frozenset) else [] if values is None else [values]
    for value in (getattr(one, "value", one) for one in several):
        if value not in known:
            raise ValueError(f"{name}: unknown {value!r}; choose from {', '.join(map(str, known))}")


def _is_on(model: Any, device: Any) -> bool:
    """Return whether ``device`` names the one of the module's weights, and is no input of the module itself."""
    if not isinstance(device, str | torch.device) or not isinstance(model, nn.Module):
        return False
    if not ignored_keywords(model, {"device": device}, OPTIONS):
        return False
    weight, named = next(model.parameters(), torch.empty(0)), torch.device(device)
    return named.type == weight.device.type and named.index in (None, weight.device.index)


def _without_torchinfo(model: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with torchinfo's ``mode`` as ``training``, unless they are inputs of the module itself."""
    own = ignored_keywords(model, options, OPTIONS) if callable(model) else [*options]
    rest = {name: value for name, value in options.items() if name != "cache_forward_pass" or name not in own}
    if "mode" in own and "training" not in rest:
        mode = rest.pop("mode")
        _check_choices("mode", [mode], MODES)
        mode = getattr(mode, "value", mode)
        rest["training"] = mode == "train" or mode == "same" and getattr(model, "training", False)
    return rest
