"""Older classic name of the reader of text files.

Owns nothing. For user modules alone.
"""

from elasticdl.python.data.reader.text_reader import TextDataReader

CSVDataReader = TextDataReader

__all__ = ["CSVDataReader"]
