"""How the embedded pair was trained."""
