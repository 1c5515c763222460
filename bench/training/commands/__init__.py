"""The commands of `bench.train`, one a file."""
