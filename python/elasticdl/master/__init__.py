"""The master: task queue, journal, membership, evaluation."""
