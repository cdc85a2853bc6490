"""Classic names: the worker."""
