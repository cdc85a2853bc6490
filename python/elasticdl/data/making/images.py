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

_DEEP = frozenset(("I", "I;16", "I;16L", "I;16B", "I;16N", "F"))  # modes of Pillow
_GREY = _DEEP | {"1", "L"}


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
    learned from them. Raises DataError if images lie deeper than classes do, which
    would be left out.
    """
    if not folder.is_dir():
        return None
    by_class = {}
    # Hidden folders are caches of previews and the like, not classes.
    folders = [path for path in _shown(folder) if path.is_dir()]
    for sub in folders:
        files = [file for file in _shown(sub) if _is_image(file)]
        if files:
            by_class[sub.name] = files
    if not by_class:
        return None
    for sub in folders:
        deep = next((file for file in sub.glob("*/**/*") if _is_image(file)), None)
        if deep is not None:
            raise DataError(
                f"{deep}: an image in a folder of its own inside {sub.name}; expected "
                f"the images of a class in one folder, as {sub / deep.name}; move it "
                "there, or out of the source"
            )
    images = [
        (file, label) for label, files in enumerate(by_class.values()) for file in files
    ]
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(images))
    return ImageFolder(tuple(by_class), tuple(images[i] for i in order))


def _shown(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _is_image(file: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.parts[-2:])
    return file.suffix.lower() in ENDINGS and not hidden and file.is_file()


class ImageRecords:
    """Decodes images to records: `image` (0 to 255, float list) and `label` (int64)."""

    def __init__(
        self, folder: ImageFolder, *, size: tuple[int, int] | None, grayscale: bool
    ) -> None:
        """Take the images; `size` is (width, height), None for that of the first image.

        They are grey if all of them are. Raises DataError if Pillow is missing.
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
        self._is_grey = True if grayscale else None
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
        if self._is_grey is None:
            self._is_grey = all(map(self._has_no_colour, self._folder.images))
        with self._pillow.open(file) as image:
            pixels = image
            if image.mode in _DEEP:
                pixels = self._to_eight_bits(image)
            converted = pixels.convert("L" if self._is_grey else "RGB")
        if self._size is not None and converted.size != self._size:
            converted = converted.resize(self._size)
        found = np.asarray(converted, np.uint8)
        return found if found.ndim == 3 else found[:, :, np.newaxis]

    def _has_no_colour(self, image: tuple[Path, int]) -> bool:
        """Whether an image is grey, by its header; a broken one decides nothing."""
        try:
            with self._pillow.open(image[0]) as opened:
                return opened.mode in _GREY
        except (OSError, ValueError, SyntaxError):
            return True

    def _to_eight_bits(self, image: Any) -> Any:
        """Return a grey image of 16 bits as one of 8, as TensorFlow's decoders do.

        Pillow makes everything above 255 white. Raises ValueError for numbers that no
        16 bits hold, since nothing says what their black and white are.
        """
        values = np.asarray(image)
        deep = image.mode.startswith("I") and values.size > 0
        if not deep or values.min() < 0 or values.max() >= 1 << 16:
            raise ValueError(
                f"its pixels are of Pillow's mode {image.mode}; expected whole numbers "
                "of 8 or 16 bits; write it again as such"
            )
        return self._pillow.fromarray((values >> 8).astype(np.uint8))
