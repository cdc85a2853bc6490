"""What several tests of data need."""

import pytest
from elasticdl.data.formats.chunk_cache import ChunkCache
from elasticdl.data.formats.files import FilePool
from elasticdl.data.formats.recordio import RecordIOReader
from elasticdl.data.records import BadRecords


class CountingPool(FilePool):
    """A pool that counts what is read."""

    def __init__(self):
        super().__init__()
        self.reads = []

    def pread(self, path, offset, length):
        self.reads.append((offset, length))
        return super().pread(path, offset, length)

    @property
    def num_bytes(self):
        return sum(length for _, length in self.reads)


@pytest.fixture
def pool():
    pool = CountingPool()
    yield pool
    pool.close()


@pytest.fixture
def open_recordio(pool):
    def open_it(path):
        return RecordIOReader(path, pool, ChunkCache())

    return open_it


@pytest.fixture
def strict():
    return BadRecords("file", skip=False)


@pytest.fixture
def lenient():
    return BadRecords("file", skip=True)
