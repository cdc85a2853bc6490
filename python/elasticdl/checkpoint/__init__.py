"""Checkpoints: format, atomic store, loading on another number of PS."""
