"""Kubernetes as plain JSON: one connection, its errors, list and watch, amounts."""
