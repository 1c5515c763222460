"""Where the answers that `bench.audit` looks at come from."""
