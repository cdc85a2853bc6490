"""Prometheus metrics, health, and the goodput ledger."""
