"""Draft trees: their shapes and how they grow."""
