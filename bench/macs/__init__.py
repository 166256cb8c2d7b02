"""Tables of costs: of modules, presets, grids, ranks and papers, and the difference of two models."""
