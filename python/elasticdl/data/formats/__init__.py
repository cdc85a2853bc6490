"""File formats of records: read by range, and written."""
