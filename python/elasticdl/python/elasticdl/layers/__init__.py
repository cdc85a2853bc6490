"""Classic names: layers."""
