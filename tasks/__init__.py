"""Tasks: where prompts come from and how answers are scored. They know no models, methods or
reports."""
