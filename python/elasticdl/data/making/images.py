"""Folders of images, a sub-folder for each class, as records.

Owns finding and decoding them. Called by `convert`. Must not import Pillow when it is
imported: only who converts images has it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.formats.example import encode_example
from elasticdl.data.records import BadRecord
from elasticdl.errors import BadRecordError, DataError

ENDINGS = frozenset(
    (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
)


@dataclass(frozen=True)
class ImageFolder:
    """Images and their labels.

    Attributes:
        classes: Names of the sub-folders, sorted; a label is a number in this list.
        images: Each image's file and label.
    """

    classes: tuple[str, ...]
    images: tuple[tuple[Path, int], ...]


def find_images(folder: Path, *, seed: int) -> ImageFolder | None:
    """Return a folder's images in an order given by `seed`; None if there are none.

    They are shuffled because they lie sorted by class, in which order nothing can be
    learned from them.
    """
    if not folder.is_dir():
        return None
    by_class = {}
    for sub in sorted(path for path in folder.iterdir() if path.is_dir()):
        files = sorted(
            file
            for file in sub.iterdir()
            if file.suffix.lower() in ENDINGS and not file.name.startswith(".")
        )
        if files:
            by_class[sub.name] = files
    if not by_class:
        return None
    images = [
        (file, label) for label, files in enumerate(by_class.values()) for file in files
    ]
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(images))
    return ImageFolder(tuple(by_class), tuple(images[i] for i in order))


class ImageRecords:
    """Decodes images to records: `image` (0 to 255, float list) and `label` (int64)."""

    def __init__(
        self, folder: ImageFolder, *, size: tuple[int, int] | None, grayscale: bool
    ) -> None:
        """Take the images; `size` is (width, height), None for that of the first image.

        Raises DataError if Pillow is missing.
        """
        try:
            self._pillow: Any = importlib.import_module("PIL.Image")
        except ImportError as error:
            raise DataError(
                "images are read with Pillow, which is not installed; install it with "
                "`pip install 'elasticdl[examples]'`"
            ) from error
        self._folder = folder
        self._size = size
        self._mode = "L" if grayscale else ""
        self.shape: tuple[int, ...] = ()
        self.bad: list[BadRecord] = []

    def records(self, *, skip_bad: bool) -> Iterator[bytes]:
        """Yield the records of the images.

        Raises BadRecordError at an image that cannot be read unless `skip_bad`, which
        lists it in `bad`; DataError at one of another size.
        """
        for number, (file, label) in enumerate(self._folder.images):
            try:
                pixels = self._decode(file)
            except (OSError, ValueError, SyntaxError) as error:
                # Pillow raises all three at broken files.
                if not skip_bad:
                    raise BadRecordError(
                        str(file),
                        0,
                        f"not an image that can be read ({error}); remove it, or leave "
                        "it out with --skip-bad",
                    ) from error
                self.bad.append(BadRecord(str(file), number, str(error)))
                continue
            if not self.shape:
                self.shape = pixels.shape
            elif pixels.shape != self.shape:
                raise DataError(
                    f"{file}: has height, width and channels {pixels.shape}, the first "
                    f"image {self.shape}; bring all to one size with --size "
                    f"{self.shape[1]}x{self.shape[0]}"
                )
            yield encode_example({"image": pixels.astype(np.float32), "label": label})

    def _decode(self, file: Path) -> NDArray[np.uint8]:
        with self._pillow.open(file) as image:
            if not self._mode:
                self._mode = "L" if image.mode in ("1", "L") else "RGB"
            converted = image.convert(self._mode)
        if self._size is not None and converted.size != self._size:
            converted = converted.resize(self._size)
        pixels = np.asarray(converted, np.uint8)
        return pixels if pixels.ndim == 3 else pixels[:, :, np.newaxis]
