"""Classic choice of a reader by the name of the data.

Owns the classic function. For user modules alone; a job without `custom_data_reader`
chooses by data/reader.py.
"""

from __future__ import annotations

from typing import Any

from elasticdl.errors import UserCodeError
from elasticdl.python.common.constants import ReaderType
from elasticdl.python.data.reader.data_reader import AbstractDataReader
from elasticdl.python.data.reader.recordio_reader import RecordIODataReader
from elasticdl.python.data.reader.text_reader import TextDataReader


def create_data_reader(
    data_origin: str, records_per_task: int | None = None, **kwargs: Any
) -> AbstractDataReader:
    """Return the reader of a `.csv` file, else of a folder of RecordIO files.

    `reader_type` of the keywords decides where it is given.
    """
    kind = kwargs.get("reader_type")
    if kind is None:
        by_name = data_origin.endswith(".csv")
        kind = ReaderType.CSV_READER if by_name else ReaderType.RECORDIO_READER
    if kind == ReaderType.CSV_READER:
        return TextDataReader(
            filename=data_origin, records_per_task=records_per_task, **kwargs
        )
    if kind == ReaderType.RECORDIO_READER:
        return RecordIODataReader(data_dir=data_origin)
    raise UserCodeError(
        f"create_data_reader(reader_type={kind!r}) is not supported, expected "
        "`RecordIO` or `CSV`; export a table to files, or write custom_data_reader"
    )
