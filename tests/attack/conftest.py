from tests.bench.conftest import no_clock  # noqa: F401  for these tests too
