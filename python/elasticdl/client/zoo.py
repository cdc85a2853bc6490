"""A model zoo and its image: the files to begin with, and the program that builds.

Owns the skeleton (`zoo_files`) and the calls to docker, podman or buildah. Called by
`cli.zoo`. What the program prints goes to the user as it comes; this module prints
nothing.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import elasticdl
from elasticdl.client.zoo_files import FILES
from elasticdl.errors import PlatformError, SpecError

# As images/build calls it here: a name without a host is a public registry's.
STOCK_IMAGE = f"localhost/elasticdl/worker:{elasticdl.__version__}"
_ENGINES = ("docker", "podman", "buildah")
_PROBE_SECONDS = 20.0


@dataclass(frozen=True)
class Engine:
    """A program that builds and pushes images."""

    name: str
    program: str


def init(folder: Path, *, base_image: str | None = None) -> tuple[list[str], list[str]]:
    """Write a zoo's skeleton; return the written and the existing files.

    Raises SpecError when the folder cannot be written.
    """
    zoo = folder.resolve().name
    marks = {"@BASE_IMAGE@": base_image or STOCK_IMAGE, "@ZOO@": zoo}
    written, kept = [], []
    try:
        for name, text in FILES.items():
            target = folder / name
            if target.exists():
                kept.append(name)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_filled(text, marks), encoding="utf-8")
            written.append(name)
    except OSError as error:
        raise SpecError(f"{folder}: cannot be written: {error.strerror}") from None
    return written, kept


def _filled(text: str, marks: Mapping[str, str]) -> str:
    for mark, value in marks.items():
        text = text.replace(mark, value)
    return text


def find_engine(search_path: str | None, *, wanted: str | None = None) -> Engine:
    """Return the wanted engine, or the first installed one that answers.

    Raises PlatformError when there is none.
    """
    names = (wanted,) if wanted else _ENGINES
    found = [
        Engine(name, program)
        for name in names
        if (program := shutil.which(name, path=search_path))
    ]
    if not found:
        what = f"{wanted} (--engine)" if wanted else "docker, podman or buildah"
        raise PlatformError(
            f"no {what} on the PATH; install one of them (podman needs no daemon), or "
            "build the image elsewhere from the zoo's Dockerfile"
        )
    if len(found) == 1:
        return found[0]  # its own message is better than ours
    return next((one for one in found if _answers(one)), found[0])


def build(
    engine: Engine,
    folder: Path,
    *,
    image: str,
    base_image: str | None = None,
    arguments: Sequence[str] = (),
) -> None:
    """Build the image of a zoo.

    Raises SpecError when the folder is no zoo, PlatformError when the build fails.
    """
    if not folder.is_dir():
        raise SpecError(f"{folder}: got no folder, expected a model zoo")
    if not (folder / "Dockerfile").is_file():
        raise SpecError(
            f"{folder}: got no Dockerfile, expected a model zoo; write one with "
            f"`elasticdl zoo init {folder}`"
        )
    words = ["build", "--tag", image]
    if base_image:
        words += ["--build-arg", f"BASE_IMAGE={base_image}"]
    _run(engine, [*words, *arguments, str(folder)])


def push(engine: Engine, image: str, *, arguments: Sequence[str] = ()) -> None:
    """Push an image. Raises PlatformError when that fails."""
    _run(engine, ["push", *arguments, image])


def _run(engine: Engine, words: Sequence[str]) -> None:
    done = subprocess.run([engine.program, *words], check=False)
    if done.returncode:
        raise PlatformError(
            f"{engine.name} {words[0]} failed (exit code {done.returncode}); what it "
            "says is above"
        )


def _answers(engine: Engine) -> bool:
    """Whether the engine's daemon answers; engines without a daemon always do."""
    if engine.name != "docker":
        return True
    try:
        done = subprocess.run(
            [engine.program, "version"],
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
