"""What replicas ask the master, and the answers."""
