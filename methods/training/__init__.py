"""Training of heads and of the rules' classifiers."""
