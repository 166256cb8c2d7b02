"""``headcount derive``: the closed form of a module as polynomials in its sizes, found by running it."""
