"""Text into tokens and expressions: where statements end, what clauses are made of.

Called by `sql.clauses`. Must not know what a statement means.
"""
