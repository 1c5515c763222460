"""Command line and YAMLs -> a typed cell."""
