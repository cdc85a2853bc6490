"""The platform exporter: what a cluster has for pods, and who holds it."""
