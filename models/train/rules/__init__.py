"""What rules need of a pair: constants, classifiers, thresholds."""
