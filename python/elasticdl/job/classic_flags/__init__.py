"""The classic command line, as a values file."""
