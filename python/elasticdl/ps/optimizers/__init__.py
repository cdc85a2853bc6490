"""Keras's optimizers on flat buffers, without Keras."""
