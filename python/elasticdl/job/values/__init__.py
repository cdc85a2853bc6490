"""Values files: read, checked, edited, explained."""
