"""The percentage of heads and of their work that a token uses, from MoH's two closed forms."""

from fractions import Fraction

from headcount.formulas import moh


def test_activated_percent():
    """A layer of 4 heads with 3 on, and one of 8 wider heads with 2 on, repeated 3 times."""

    def forms(form):
        common = dict(B=1, T=7, S=7, form=form)
        first = moh.layer("a", d_m=13, h=4, s=1, r=2, d_h=5, g=4, **common)
        second = moh.layer("b.*", d_m=13, h=8, s=1, r=1, d_h=17, g=8, **common)
        return first + second.repeat(3)

    released, ideal = forms("released"), forms("ideal")
    assert moh.activated_percent(released, ideal) == Fraction(100 * (3 + 3 * 2), 4 + 3 * 8)
    assert (moh.shared_percent(ideal), moh.shared_percent(released)) == (Fraction(100 * (1 + 3 * 1), 3 + 3 * 2), 0)
    small, large = (2 * 7 * 13 * d + 2 * 7 * 7 * d for d in (5, 17))
    work = Fraction(100 * (3 * small + 3 * 2 * large), 4 * small + 3 * 8 * large)
    assert moh.activated_macs_percent(released, ideal) == work
    assert moh.activated_percent(released, released) == moh.activated_macs_percent(released, released) == 100
