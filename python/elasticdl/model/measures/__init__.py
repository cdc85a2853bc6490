"""What tells how good a model is: losses, metrics, their targets and masks."""
