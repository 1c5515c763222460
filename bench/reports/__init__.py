"""`report=NAME`: many cells -> one table, figure or page."""
