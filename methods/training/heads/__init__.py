"""Training of drafter heads."""
