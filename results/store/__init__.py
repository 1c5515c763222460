"""Files on disk, written so that a kill loses at most the prompts in flight."""
