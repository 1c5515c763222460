"""Constants and classifiers that rules need."""
