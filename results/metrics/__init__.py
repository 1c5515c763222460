"""Numbers from samples: one definition a metric."""
