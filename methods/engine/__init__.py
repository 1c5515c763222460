"""Models: checkpoints, forwards, caches. The one place that touches transformers."""
