"""Where replicas run."""
