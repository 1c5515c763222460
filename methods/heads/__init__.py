"""Trained drafter heads: EAGLE and Medusa."""
