"""The model from the master: who holds it, checkpoints, evaluation."""
