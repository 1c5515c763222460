"""Figures: drawn from a report and its grid, readable in greyscale and with any colour vision."""
