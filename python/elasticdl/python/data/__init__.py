"""Classic names: data."""
