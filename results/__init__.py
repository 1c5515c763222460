"""What was measured: the store of cells, their summaries with uncertainty, and reports laid out as tables and pages."""
