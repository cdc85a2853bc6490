"""Prints what the package needs with the extras named, one requirement a line.

Run by the Dockerfiles. An image's packages are so a layer of their own, which a change
of the code leaves as it is; TensorFlow is not installed again for each commit.

    requirements.py pyproject.toml [EXTRA...]
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
extras = project["optional-dependencies"]
for extra in sys.argv[2:]:
    if extra not in extras:
        sys.exit(f"got extra {extra!r}, expected one of {', '.join(extras)}")
lines = [*project["dependencies"], *(line for e in sys.argv[2:] for line in extras[e])]
sys.stdout.write("\n".join(lines) + "\n")
