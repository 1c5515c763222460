"""Measurements that a single figure or table needs after its cells: each reads a cell's answers or traces, and writes a
record into the cell's folder."""

AGREEMENT = "agreement"
"""The record of a cell's agreement with others: what was compared, and measure -> series -> numbers."""
COVERAGE = "coverage"
"""The record of the audit of ARC-Decode's bound."""
