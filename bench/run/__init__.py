"""A cell -> its samples: models loaded, prompts decoded, scored, timed and stored."""
