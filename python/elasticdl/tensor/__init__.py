"""Tensors on the wire and their place on the PS."""
