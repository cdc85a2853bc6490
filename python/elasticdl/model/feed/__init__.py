"""Batches of tensors out of records, through the user's feed."""
