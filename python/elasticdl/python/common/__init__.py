"""Classic names: constants and the logger."""
