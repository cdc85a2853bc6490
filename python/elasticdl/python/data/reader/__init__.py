"""Classic names: readers, of which modules import some from here."""

from elasticdl.python.data.reader.data_reader import AbstractDataReader, Metadata
from elasticdl.python.data.reader.data_reader_factory import create_data_reader
from elasticdl.python.data.reader.recordio_reader import RecordIODataReader
from elasticdl.python.data.reader.text_reader import TextDataReader

__all__ = [
    "AbstractDataReader",
    "Metadata",
    "RecordIODataReader",
    "TextDataReader",
    "create_data_reader",
]
