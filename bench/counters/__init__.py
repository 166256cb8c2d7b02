"""MAC counters: headcount's own, ptflops and fvcore, with rules that predict what each of them counts."""
