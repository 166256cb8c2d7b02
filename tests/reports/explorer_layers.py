"""Expected accounts of the explorer's layers, computed as by ``headcount grid``, and random sizes."""

import random

from headcount.bench import accounts
from headcount.bench.macs import grid
from headcount.models.configs.base import ConfigError
from headcount.reports.explorer import forms

LETTERS = ("T", "d_m", "B", "K", "E", "D", "h", "g", "d_h", "s", "r", "d_c", "d_r", "d_v", "d_q", "w")
FORMS = {form.name: form for form in forms.forms()}
ACCOUNTS = {account.name: account for account in forms.LAYER_ACCOUNTS}


def case_of(form, z):
    """Return the layer of a form at sizes; None where it cannot be built."""
    own = {letter: z.get(str(size), size) for letter, size in form.sizes.items()}
    bias = {"bias": 0} if "bias" in form.variant.grid.letters else {}
    try:
        case = grid.case_at(form.variant, {**own, **bias, "T": z["T"], "B": z["B"], "d_m": z["d_m"]})
    except ConfigError:
        return None
    return case.ideal if form.ideal else case


def value(account, case, z):
    """Return one account of a layer at sizes."""
    if account.key not in accounts.ACCOUNTS:
        return getattr(case.ledger, account.key)
    optimizer = account.options.removeprefix("--optimizer ")
    # the explorer's window belongs to its row alone; caches and steps are without one
    window = z["w"] if account.key == "windowed_macs" else None
    return accounts.ACCOUNTS[account.key].value(case, accounts.Assumptions(window=window, optimizer=optimizer))


def exact(account, form, z):
    """Return one account of a form at sizes, both by name."""
    return value(ACCOUNTS[account], case_of(FORMS[form], z), z)


def expected(z):
    """Return the accounts of each form as texts; None for a layer that cannot be built."""
    cases = {name: case_of(form, z) for name, form in FORMS.items()}
    return {
        form: case and {name: str(value(account, case, z)) for name, account in ACCOUNTS.items()}
        for form, case in cases.items()
    }


def points(seed, count):
    """Return random sizes: a third small, with 0 or 1 shared and routed heads, a third usual, a third beyond 2^53."""
    dice = random.Random(seed)
    found = []
    for i in range(count):
        most = (12, 600, 10**6)[i % 3]
        z = {letter: dice.randint(1, most) for letter in LETTERS}
        if dice.random() < 0.8:
            z["K"], z["E"] = sorted((z["K"], z["E"]))
            z["g"] = dice.choice([g for g in range(1, 40) if z["h"] % g == 0])
            z["s"] = dice.choice([0, 1, dice.randint(0, z["h"])])
            z["r"] = dice.choice([0, dice.randint(0, z["h"] - z["s"])]) if z["s"] else dice.randint(1, z["h"])
        found.append(z)
    return found
