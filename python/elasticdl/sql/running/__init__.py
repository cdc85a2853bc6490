"""Statements carried out: rows, shards, jobs, and what comes back.

Owns the order of these steps. Called by `cli.sql`, by the prompt and by notebooks,
which say how a job is run and shown. Must not print.
"""
