"""What the commands of `bench.train` share."""
