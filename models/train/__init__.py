"""Training: drafter heads, what rules learn on a pair, and the embedded pair itself with the texts
of its benchmarks."""
