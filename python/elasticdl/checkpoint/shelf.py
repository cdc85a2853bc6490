"""Checkpoints side by side in a folder: which there are, the newest, the old ones.

Owns the choice among several, by what their manifests say and not by their names alone.
Called by the master (its own ones) and by whoever was given a folder by a user. Reads
no shards: whether bytes are whole is seen where they are loaded.

Of one run the order is (rewind, version): a rewind begins another course, whose
checkpoints are newer than all before it, whatever their version.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from elasticdl.beneath import opened
from elasticdl.checkpoint.layout import (
    ABANDONED,
    MANIFEST,
    PENDING,
    Manifest,
    parse_version_dir,
)
from elasticdl.checkpoint.store import read_manifest
from elasticdl.errors import CheckpointError, is_storage_away
from elasticdl.job.names import JobDir

log = logging.getLogger(__name__)

Complete = tuple[Path, Manifest]


def complete(directory: Path, *, root: Path | None = None) -> Iterator[Complete]:
    """Yield the complete checkpoints of a folder, those of higher versions first.

    Here and below: no link is followed below `root`, which is the folder by default.
    Torn ones are skipped with a warning. Raises CheckpointError if the folder cannot
    be read, or one of them because its storage is away; one that is not there has none.
    """
    directory = Path(directory)
    root = root or directory
    for _, path in reversed(_versions(directory, root)):
        try:
            manifest = read_manifest(path, root=root)
        except CheckpointError as error:
            if is_storage_away(error):
                raise
            log.warning("Skipped an incomplete checkpoint: %s", error)
            continue
        yield path, manifest


def newest(directory: Path) -> Complete | None:
    """Return the newest checkpoint of the one run in a folder; None if there is none.

    Raises CheckpointError as `of_one_run`.
    """
    return next(iter(of_one_run(directory)), None)


def of_one_run(directory: Path) -> list[Complete]:
    """Return the checkpoints of the one run in a folder, the newest first.

    Raises CheckpointError if there are those of several runs, for nobody can tell
    which one is meant, or a link among them, which is not followed: the newest one
    would be another.
    """
    for _, path in _versions(directory, directory):
        if path.is_symlink():
            raise CheckpointError(
                f"{path}: is a link, expected a folder: whoever wrote the other ones "
                "may have made it, and it is not followed. Name the checkpoint itself "
                "(.../version-<N>), or have the folder in its place"
            )
    found = list(complete(directory))
    runs: dict[str, Complete] = {}
    for one in found:
        runs.setdefault(_run(one[1], found), one)
    if len(runs) > 1:
        some = " and ".join(
            f"{path.name} of job {manifest.job}" for path, manifest in runs.values()
        )
        raise CheckpointError(
            f"{directory}: holds checkpoints of {len(runs)} runs ({some}), expected "
            "one run's; name the checkpoint itself (.../version-<N>)"
        )
    return sorted(found, key=lambda one: age(*one), reverse=True)


def _run(manifest: Manifest, others: Collection[Complete]) -> str:
    """Return the writing run; a checkpoint without one counts to the single run.

    A job that was begun by an older ElasticDL and went on has both.
    """
    if manifest.run:
        return manifest.run
    later = {m.run for _, m in others if m.run and m.job == manifest.job}
    return later.pop() if len(later) == 1 else f"job {manifest.job}"


def age(path: Path, manifest: Manifest) -> tuple[int, int, int]:
    """Return the sort key of the checkpoints of one run; the newest has the highest."""
    _, again = parse_version_dir(path.name) or (0, 0)
    return manifest.rewind, manifest.version, again


def _versions(directory: Path, root: Path) -> list[tuple[tuple[int, int], Path]]:
    names = _names(directory, root)
    numbered = [(parse_version_dir(name), directory / name) for name in names]
    return sorted((number, path) for number, path in numbered if number is not None)


def _names(directory: Path, root: Path) -> list[str]:
    try:
        with opened(directory, root=root) as folder:
            return folder.names()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(
            f"{directory}: cannot be read: {error.strerror}; make the folder readable "
            "or name another one"
        ) from error


def resolve(path: Path) -> Complete:
    """Return the checkpoint that a user's path means: the newest of those in `meant`.

    Raises CheckpointError as that does.
    """
    return meant(path)[0]


def meant(path: Path) -> list[Complete]:
    """Return the checkpoints that a user's path means, the newest first.

    It is the path itself alone, or those in that folder or in that job's folder.

    Raises CheckpointError, with what was found, if there is no complete one, or those
    of several runs.
    """
    path = Path(path)
    try:
        named = parse_version_dir(path.name) is not None and path.is_dir()
        named = named or (path / MANIFEST).exists()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    if named:
        return [(path, read_manifest(path))]
    found = of_one_run(path) or of_one_run(JobDir(path).checkpoints_dir)
    if found:
        return found
    if not path.exists():
        there = "no such folder"
    elif not path.is_dir():
        there = "a file"
    else:
        names = sorted(entry.name for entry in path.iterdir())
        there = f"a folder with {', '.join(names[:8])}" if names else "an empty folder"
        there += ", ..." if len(names) > 8 else ""
    raise CheckpointError(
        f"{path}: got {there}, expected a checkpoint (version-<N> with {MANIFEST}) or "
        "a folder of them; give the folder that checkpoint.dir of the first job named"
    )


def delete_old(
    directory: Path,
    keep: int,
    *,
    mine: Callable[[Manifest], bool],
    protect: Collection[Path] = (),
    root: Path | None = None,
) -> list[Path]:
    """Delete all but the `keep` newest checkpoints of this run; return the deleted.

    `mine` tells them from those of others, which stay, as does all if `keep` is 0.
    Never deleted: the newest, anything of a higher version (it may be in the making),
    and `protect` (the one just written, one being loaded). Abandoned and torn ones
    below the newest go too.

    Failures are logged, not raised: a folder that stays does no harm.
    """
    directory = Path(directory)
    root = root or directory
    own = [path for path, one in complete(directory, root=root) if mine(one)]
    kept = own[:keep]
    if not kept:
        return []
    limit = parse_version_dir(kept[0].name) or (0, 0)
    safe = {path.resolve() for path in (*kept, *protect)}
    old = [path for path in own if path.resolve() not in safe]
    old += [
        path
        for number, path in _versions(directory, root)
        if number < limit and not (path / MANIFEST).exists()
    ]
    for name in _names(directory, root):
        if name.startswith(ABANDONED):
            with contextlib.suppress(CheckpointError):
                if mine(read_manifest(directory / name, root=root)):
                    old.append(directory / name)
    return [path for path in old if _delete(path, root)]


def abandon(version_dir: Path, *, root: Path | None = None) -> Path | None:
    """Move a checkpoint out of sight of every reader; return its new path.

    It stays on the disk, for a look at it, until `delete_old` comes by. A failure is
    logged: its manifest still tells of which course it is.
    """
    target = version_dir.with_name(ABANDONED + version_dir.name)
    place = version_dir.parent
    try:
        with opened(place, root=root or place) as folder:
            if folder.has(target.name):
                folder.remove_tree(target.name)
            folder.rename(version_dir.name, target.name)
    except OSError as error:
        log.warning("%s cannot be set aside: %s", version_dir, error)
        return None
    return target


def sweep(
    directory: Path,
    *,
    prefix: str,
    keep: Path | None = None,
    root: Path | None = None,
) -> None:
    """Delete unfinished checkpoints with this prefix, except `keep`."""
    with contextlib.suppress(CheckpointError):
        for name in _names(directory, root or directory):
            if name.startswith(PENDING + prefix) and directory / name != keep:
                remove(directory / name, root=root)


def remove(path: Path, *, root: Path | None = None) -> None:
    """Delete a folder, as far as that goes."""
    place = path.parent
    with contextlib.suppress(OSError), opened(place, root=root or place) as folder:
        folder.remove_tree(path.name)


def _delete(version_dir: Path, root: Path) -> bool:
    try:
        with opened(version_dir.parent, root=root) as folder:
            # Without its manifest nobody takes it for complete while it goes.
            with (
                folder.below(version_dir.name) as gone,
                contextlib.suppress(FileNotFoundError),
            ):
                gone.unlink(MANIFEST)
            folder.remove_tree(version_dir.name)
    except OSError as error:
        log.warning("Cannot delete the old checkpoint %s: %s", version_dir, error)
        return False
    return True
