import threading
from pathlib import Path

import pytest
from elasticdl.data.formats.files import FilePool
from elasticdl.data.reader import open_reader
from elasticdl.errors import DataError


def test_no_more_files_are_open_than_allowed(tmp_path):
    pool = FilePool(most_open=3)
    for i in range(10):
        path = tmp_path / str(i)
        path.write_bytes(b"%d" % i)
        assert pool.pread(path, 0, 1) == b"%d" % i
    assert pool.num_open == 3
    pool.close()
    assert pool.num_open == 0


def test_a_read_beyond_the_end_gives_what_there_is(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abcdef")
    assert FilePool().pread(path, 4, 100) == b"ef"
    assert FilePool().pread(path, 100, 5) == b""


def test_a_missing_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        FilePool().pread(tmp_path / "none", 0, 1)


def opened(path: Path) -> bool:
    """Return whether this process has a file open."""
    numbers = Path("/proc/self/fd").iterdir()
    return path in [fd.readlink() for fd in numbers if fd.is_symlink()]


def test_a_reader_that_nobody_holds_any_more_leaves_no_file_open(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x\n1\n2\n")
    reader = open_reader("t.csv", data_root=tmp_path)
    assert reader.read("t.csv", 0, 2, skip_bad=False).values == [b"1", b"2"]
    assert opened(path)
    del reader
    assert not opened(path)


def test_threads_share_the_pool(tmp_path):
    pool = FilePool(most_open=2)
    paths = []
    for i in range(6):
        paths.append(tmp_path / str(i))
        paths[-1].write_bytes(bytes([i]) * 1000)
    wrong = []

    def read():
        for _ in range(50):
            for i, path in enumerate(paths):
                if pool.pread(path, 10, 500) != bytes([i]) * 500:
                    wrong.append(i)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert pool.num_open <= 4
