"""Verbs about a cluster of many jobs: room of `cli`, which would be too full."""
