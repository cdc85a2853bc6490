"""Makes one release: `make release REGISTRY=... BASE_IMAGE=... KEY=...`.

Owns the command line, the order of steps and the folder that is published. What is
stated is in `facts`; docs/releasing.md says what each file is for.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

from elasticdl import __version__

from release import chart, facts, lock, tools

_EPILOG = """\
examples:
  make release REGISTRY=registry.example/team BASE_IMAGE=python@sha256:... \\
      KEY=~/.ssh/release IDENTITY=releases@example.org
  make release ... RECORD=images-built-elsewhere

Pushes chart and images to REGISTRY, and writes dist/VERSION: the chart's archive,
lock and SBOM of each image, provenance, sums with a signature, and how to install it.
docs/releasing.md says how others check it.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m release.main",
        description=__doc__.splitlines()[0],
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("--registry", default="", help="host and folders, as registry.example/team")
    option("--base-image", default="", help="what images are built on, by its digest")
    option(
        "--key", default="", help="SSH key to sign with, or its public half in an agent"
    )
    option("--identity", default="", help="whose key it is, as an address of mail")
    option("--record", default="", help="folder of images/build: take its images")
    option("--builder", default="", help="URI of who builds; default: by hand")
    option("--out", default="", help="folder to write, default dist/VERSION")
    option("--tools", default=".venv/release/bin", help="folder with cyclonedx-py")
    return parser


def _step(text: str) -> None:
    sys.stdout.write(f"{datetime.now():%H:%M:%S}  {text}\n")  # noqa: DTZ005 - for people
    sys.stdout.flush()


def _identity(given: str) -> str:
    if not re.fullmatch(r"[^\s,!*?\"]+", given):
        raise facts.ReleaseError(
            f"identity: got {given!r}, expected whose key it is, as "
            "IDENTITY=releases@example.org"
        )
    return given


def _folder(given: str) -> Path:
    folder = Path(given or f"dist/{__version__}").resolve()
    if folder.exists() and any(folder.iterdir()):
        raise facts.ReleaseError(
            f"folder: {folder} is not empty; remove it, or name another one by OUT="
        )
    return folder


def _images(
    arguments: argparse.Namespace, registry: str, commit: str, epoch: int
) -> tuple[str, tuple[facts.Image, ...]]:
    """Return the base and the images, as they are in the registry under their tag."""
    if arguments.record:
        record = Path(arguments.record)
    else:
        base = facts.check_base(arguments.base_image)
        record = lock.ROOT / "dist" / "record"
        _step("images: built and pushed; minutes, most of them for TensorFlow")
        env = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
        if facts.is_loopback(registry):
            env["PLAIN_HTTP"] = "1"
        tools.build_images(registry, base, record, env)
    base, images = tools.recorded(record, registry, commit)
    for image in images:
        _step(f"{image.role}: read back from the registry, compared with its lock")
        there = chart.digest_of(f"{image.name}:{__version__}")
        if there != image.digest:
            raise facts.ReleaseError(
                f"image {image.role}: {there} in the registry, {image.digest} was "
                "pushed here; somebody pushed another one, so push again"
            )
        text = (lock.ROOT / image.lock).read_text()
        facts.check_locked(image, lock.pinned(text))
    return facts.check_base(base), images


def _files(release: facts.Release, programs: Path) -> dict[str, bytes]:
    """Return locks and SBOMs by name."""
    files = {"install.txt": facts.install_line(release).encode()}
    for image in release.images:
        _step(f"{image.role}: SBOM")
        text = (lock.ROOT / image.lock).read_text()
        files[f"{image.role}.lock.txt"] = text.encode()
        python = tools.sbom_of(facts.requirements(image, text), programs)
        sbom = facts.completed(python, image, release)
        files[f"{image.role}.cdx.json"] = facts.as_json(sbom)
    return files


def _release(arguments: argparse.Namespace) -> None:
    began = datetime.now(UTC)
    registry = facts.check_registry(arguments.registry)
    key = Path(arguments.key or "KEY").expanduser().absolute()
    public = tools.public_key(key)
    identity = _identity(arguments.identity)
    if not arguments.record:
        facts.check_base(arguments.base_image)
    folder = _folder(arguments.out)
    programs = Path(arguments.tools).absolute()
    commit, epoch = tools.commit()
    chart.check_reachable(registry)
    number = facts.chart_version(__version__)
    # Before anything is pushed.
    chart.check_new(lock.ROOT / "charts" / "elasticdl", epoch, registry, number)

    _step(f"ElasticDL {__version__}, commit {commit[:12]}, to {registry}")
    base, images = _images(arguments, registry, commit, epoch)
    folder.mkdir(parents=True, exist_ok=True)
    _step("chart: packed and pushed")
    archive = chart.pack(lock.ROOT / "charts" / "elasticdl", folder, epoch)
    chart.push(archive, registry)
    release = facts.Release(
        version=__version__,
        commit=commit,
        registry=registry,
        base=base,
        builder=arguments.builder or f"{facts.BUILD_TYPE}-by-hand",
        chart_digest=chart.digest_of(f"{registry}/charts/elasticdl:{number}"),
        images=images,
    )
    files = {archive.name: archive.read_bytes(), **_files(release, programs)}
    ended = datetime.now(UTC)
    stated = facts.provenance(release, files, _instant(began), _instant(ended))
    files["provenance.json"] = facts.as_json(stated)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    tools.check_sboms(sorted(folder.glob("*.cdx.json")), programs)
    (folder / facts.SUMS).write_text(facts.sums(files))
    _step(f"signed by {key}")
    tools.sign(folder, key, identity, public)
    _step(f"done: {folder}")
    sys.stdout.write(
        f"\n# Others check it there, with allowed_signers from where they trust it:\n"
        f"{facts.verify_lines(identity)}\n# and install it:\n"
        f"{facts.install_line(release)}"
    )


def _instant(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def main() -> None:
    """Run it; what is refused is one line, and exit code 1."""
    try:
        _release(_parser().parse_args())
    except facts.ReleaseError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
