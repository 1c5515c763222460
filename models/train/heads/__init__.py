"""Training of drafter heads, in the official formats."""
