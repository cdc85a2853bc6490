"""The way of the rows: from a source to staged rows, shards and statistics, and back.

Owns all that touches engines and files. Called by `sql.running`. Must not know
statements, models or jobs: it gets plans.
"""
