"""Workers that step together (`collective`): which records a step has."""
