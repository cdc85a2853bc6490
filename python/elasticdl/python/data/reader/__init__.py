"""Classic names: readers."""
