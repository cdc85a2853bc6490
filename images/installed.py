"""Prints what an image has: the packages of Python and of Debian in it, as JSON.

Run inside an image by images/build, on its standard input: it imports nothing of ours.
"""

import json
import platform
import shutil
import subprocess
from importlib import metadata

python = sorted((d.metadata["Name"], d.version) for d in metadata.distributions())
debian = []
if shutil.which("dpkg-query"):
    form = "${Package}\t${Version}\t${Architecture}\n"
    words = ["dpkg-query", "--show", f"--showformat={form}"]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    debian = sorted(line.split("\t") for line in lines.splitlines())
print(json.dumps({"machine": platform.machine(), "python": python, "debian": debian}))
