"""Record one run of a module as nested events, without changing anything of the caller's."""
