"""checkov on what the chart renders: pods of all roles, and every object beside them.

    python -m tests.chart.posture CHECKOV    # the program; `make posture` installs it

What is skipped is in checkov.yaml, each with its reason. The exit code is checkov's.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from tests.chart.rendering import EXAMPLES, config_map, objects, values_of

SETTINGS = Path(__file__).with_name("checkov.yaml")
OF_THE_NODE = "host-path"  # an example of what the restricted standard forbids


def main(checkov):
    """Render every example into a folder, and have it looked at."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "platform.yaml", objects())
        for file in EXAMPLES:
            if file.stem != OF_THE_NODE:
                write(Path(folder) / file.name, objects(values_of(file)))
        command = [checkov, "-d", folder, "--config-file", str(SETTINGS)]
        return subprocess.run(command, check=False).returncode


def write(file, found):
    documents = list(found.values())
    if any(kind == "Job" for kind, _ in found):
        templates = config_map(found)
        for key in ("ps.yaml", "worker.yaml"):
            templates[key]["metadata"]["name"] = (
                f"{file.stem}-{key.removesuffix('.yaml')}"
            )
            documents.append(templates[key])
    file.write_text(yaml.safe_dump_all(documents))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
