"""A worker's tasks: leased, read ahead, reported."""
