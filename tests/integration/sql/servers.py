"""MariaDB and PostgreSQL from the distribution, on loopback, for one test session.

Each has a folder of its own, a free port and a password, and is ended by its process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy

PASSWORD = "s3cret-pass"
_PACKAGES = {"mariadbd": "mariadb-server", "postgres": "postgresql"}
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Database:
    """A server that runs."""

    url: str
    port: int


def program(name: str) -> str:
    """Return a server's program, installed where it is not there and can be."""
    found = _find(name)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends"]
        environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run([*install, _PACKAGES[name]], env=environ, check=False,
                       capture_output=True)  # fmt: skip
        found = _find(name)
    if found is None:
        pytest.skip(f"no {name} here, and it could not be installed")
    return found


def _find(name: str) -> str | None:
    places = [
        "/usr/sbin",
        "/usr/bin",
        *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin"))),
    ]
    return shutil.which(name, path=os.pathsep.join(places))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def mariadb(folder: Path) -> Iterator[Database]:
    server = program("mariadbd")
    data = folder / "data"
    install = shutil.which("mariadb-install-db") or "mariadb-install-db"
    common = ["--no-defaults", f"--datadir={data}", "--user=root"]
    subprocess.run(
        [
            install,
            *common,
            "--skip-test-db",
            "--auth-root-authentication-method=normal",
        ],
        check=True,
        capture_output=True,
    )
    port = free_port()
    # The server runs them before it listens: nobody connects before the user is there.
    first = folder / "first.sql"
    first.write_text(
        "CREATE DATABASE shop CHARACTER SET utf8mb4;\n"
        f"CREATE USER 'reader'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}';\n"
        "GRANT ALL ON shop.* TO 'reader'@'127.0.0.1';\n"
    )
    command = [
        server, *common, "--bind-address=127.0.0.1", f"--port={port}",
        f"--socket={folder / 's'}", f"--pid-file={folder / 'pid'}",
        f"--init-file={first}", "--skip-name-resolve",
        "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M",
    ]  # fmt: skip
    url = f"mysql://reader:{PASSWORD}@127.0.0.1:{port}/shop"
    with _running(command, folder, signal.SIGTERM) as process:
        engine = sqlalchemy.create_engine(url.replace("://", "+pymysql://", 1))
        _wait(engine, process, folder)
        engine.dispose()
        yield Database(url, port)


@contextlib.contextmanager
def postgresql(folder: Path) -> Iterator[Database]:
    # It refuses to run as root, and others may not enter the folder of root's tests:
    # each pytest that begins meanwhile sees to that again.
    user = "postgres" if os.geteuid() == 0 else None
    with contextlib.ExitStack() as stack:
        if user:
            made = tempfile.TemporaryDirectory(prefix="postgresql-")
            folder = Path(stack.enter_context(made))
            shutil.chown(folder, user)
        yield stack.enter_context(_postgresql(folder, user))


@contextlib.contextmanager
def _postgresql(folder: Path, user: str | None) -> Iterator[Database]:
    server = program("postgres")
    data, password = folder / "data", folder / "password"
    password.write_text(PASSWORD)
    if user:
        shutil.chown(password, user)
    initdb = str(Path(server).with_name("initdb"))
    subprocess.run(
        [initdb, "-D", str(data), "-U", "reader", f"--pwfile={password}", "-E", "UTF8",
         "-A", "scram-sha-256", "--no-sync", "--locale=C"],
        check=True, capture_output=True, user=user, cwd=folder,
    )  # fmt: skip
    port = free_port()
    command = [server, "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k",
               str(folder), "-F"]  # fmt: skip
    url = f"postgresql://reader:{PASSWORD}@127.0.0.1:{port}/postgres"
    with _running(command, folder, signal.SIGINT, user=user) as process:
        engine = sqlalchemy.create_engine(url.replace("://", "+psycopg://", 1))
        _wait(engine, process, folder)
        engine.dispose()
        yield Database(url, port)


@contextlib.contextmanager
def _running(
    command: Sequence[str],
    folder: Path,
    ending: signal.Signals,
    *,
    user: str | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, user=user, cwd=folder
        )
    try:
        yield process
    finally:
        process.send_signal(ending)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(
    engine: sqlalchemy.Engine, process: subprocess.Popen[bytes], folder: Path
) -> None:
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            with engine.connect():
                return
        except sqlalchemy.exc.SQLAlchemyError:
            if process.poll() is not None or time.monotonic() > end:
                raise AssertionError((folder / "log").read_text()) from None
            time.sleep(0.1)  # its own start, no claim of ours
