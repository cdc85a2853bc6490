"""Lines, tables and bars in the terminal."""
