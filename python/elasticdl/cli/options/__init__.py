"""What the parsers of several verbs have in common."""
