"""Classic names: callbacks and layers."""
