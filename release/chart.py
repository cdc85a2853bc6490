"""The chart's archive, the same bytes for the same commit, and its way to a registry.

Owns packing, pushing and asking a registry for digests, by Helm as a library: it reads
the logins of `helm registry login` and `docker login`. Called by `main`; must not know
what else is released.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import helm_python

from release.facts import ReleaseError, is_loopback

_SECONDS = 10.0


def pack(chart: Path, folder: Path, epoch: int) -> Path:
    """Write `NAME-VERSION.tgz` into a folder, each file of it as old as the commit."""
    archive = Path(helm_python.package(chart, destination=folder))
    archive.write_bytes(at_one_time(archive.read_bytes(), epoch))
    # Helm notes the archive's own time in what it pushes.
    os.utime(archive, (epoch, epoch))
    return archive


def at_one_time(archive: bytes, epoch: int) -> bytes:
    """Return a `.tgz` with the same files, in order of their names, at one time."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as old,
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            entry = tarfile.TarInfo(member.name)
            entry.size, entry.mtime, entry.mode = member.size, epoch, 0o644
            new.addfile(entry, old.extractfile(member))
    return packed.getvalue()


def check_reachable(registry: str) -> None:
    """Raise ReleaseError unless a registry answers as one; a login may be asked for."""
    host = registry.split("/", maxsplit=1)[0]
    scheme = "http" if is_loopback(registry) else "https"
    try:
        with urllib.request.urlopen(f"{scheme}://{host}/v2/", timeout=_SECONDS):
            return
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            return
        reason = f"{scheme}://{host}/v2/ answers {error.code}"
    except OSError as error:
        reason = f"{scheme}://{host}/v2/: {getattr(error, 'reason', error)}"
    raise ReleaseError(
        f"registry {registry}: got no answer of a registry ({reason}); start it, or "
        "name another one by REGISTRY="
    )


def check_new(chart: Path, epoch: int, registry: str, number: str) -> None:
    """Raise ReleaseError where a registry has another chart of this version.

    What others have installed must not change under its name; only `-dev` is replaced.
    """
    plain = is_loopback(registry)
    name = f"oci://{registry}/charts/elasticdl"
    with tempfile.TemporaryDirectory() as there, tempfile.TemporaryDirectory() as own:
        try:
            with helm_python.RegistryClient(plain_http=plain) as client:
                client.pull(name, version=number, destination=there, plain_http=plain)
        except helm_python.HelmError:
            return  # none there, or a registry whose answer to a push says why not
        found = [file.read_bytes() for file in Path(there).glob("*.tgz")]
        same = found == [pack(chart, Path(own), epoch).read_bytes()]
    if not same and "-dev" not in number:
        raise ReleaseError(
            f"chart: {name}:{number} is there with other content, and others may have "
            "it: raise the version, or check out the commit that it is of"
        )


def push(archive: Path, registry: str) -> None:
    """Push it to `REGISTRY/charts`. Raises ReleaseError."""
    plain = is_loopback(registry)
    try:
        with helm_python.RegistryClient(plain_http=plain) as client:
            client.push(archive, f"oci://{registry}/charts", plain_http=plain)
    except helm_python.HelmError as error:
        raise ReleaseError(
            f"chart: not pushed to {registry}/charts: {error}; log in with "
            "`helm registry login`, or name another registry"
        ) from error


def digest_of(name: str) -> str:
    """Return the digest that a registry has under `NAME:TAG`. Raises ReleaseError."""
    try:
        with helm_python.RegistryClient(plain_http=is_loopback(name)) as client:
            return str(client.resolve(f"oci://{name}")["digest"])
    except helm_python.HelmError as error:
        raise ReleaseError(
            f"{name}: the registry does not have it: {error}; push it, and log in with "
            "`helm registry login` where reading needs that"
        ) from error
