"""One training step as a TensorFlow function."""
