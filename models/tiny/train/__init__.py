"""How the embedded pair and the texts of its benchmarks were made; nothing else needs this
folder."""
