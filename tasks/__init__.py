"""Tasks: where prompts come from and how answers are scored. Knows nothing of models, methods or reports."""
