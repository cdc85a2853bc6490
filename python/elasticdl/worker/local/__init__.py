"""Strategy local: the whole model in one process."""
