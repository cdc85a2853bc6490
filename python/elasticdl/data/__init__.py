"""Records: formats, indexes, ranges, conversion."""
