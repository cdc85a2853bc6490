"""Predictions of an earlier run, in the folder that a prediction job is to write to.

Owns what becomes of them as a job begins. Called by `master.course.stages`, once in a
run. Must know nothing of tasks.

Each task replaces the file of its own number. An earlier run of more records, of other
tasks or in the other format left files beside those, which whoever reads the folder
would take for this job's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from elasticdl.errors import DataError
from elasticdl.job.names import PREDICTION_FILE
from elasticdl.job.words import OTHER_OUTPUT

log = logging.getLogger(__name__)


def remove_earlier(folder: Path, sources: Iterable[Path]) -> None:
    """Remove earlier predictions from a folder; leave all other files.

    `sources`: the files of the job's own records. Raises DataError if they lie among
    what would be removed, or it cannot be removed.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return  # a worker says what is wrong with it as it writes
    except OSError as error:
        raise _refused(folder, error) from error
    earlier = [folder / name for name in names if PREDICTION_FILE.fullmatch(name)]
    if not earlier:
        return
    place = folder.resolve()
    own = next((s for s in sources if s.resolve().parent == place), None)
    if own is not None:
        raise DataError(
            f"predictions would replace the records that they are made of: {own} lies "
            f"in job.predictionOutput, {folder}; {OTHER_OUTPUT}"
        )
    try:
        for path in earlier:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise _refused(folder, error) from error
    log.info("removed %d files of earlier predictions from %s", len(earlier), folder)


def _refused(folder: Path, error: OSError) -> DataError:
    return DataError(
        f"predictions of an earlier run cannot be removed from {folder}: "
        f"{error.strerror or error}; remove them or {OTHER_OUTPUT}"
    )
