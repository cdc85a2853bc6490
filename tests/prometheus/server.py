"""A real Prometheus of a test's own, on loopback, ended by its process number."""

import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

from tests.prometheus.tools import program

RULES = Path(__file__).parents[2] / "charts/elasticdl/files/rules/elasticdl.yaml"


def with_thresholds(text, **thresholds):
    """Return the rules with other numbers, put in by the marks that the chart reads."""
    for key, value in thresholds.items():
        text, count = re.subn(
            rf"[0-9.]+(s?) # threshold: {key}\b", rf"{value}\1 # threshold: {key}", text
        )
        assert count, f"no rule has the threshold {key}"
    return text


def at_once(text):
    """Return the rules with alerts that do not wait before they fire."""
    return re.sub(r"(?m)^(\s+for: ).*$", r"\g<1>0s", text)


class Prometheus:
    """Scrapes the jobs of a folder, or what it is told; a context manager."""

    def __init__(
        self, folder, target_files=(), *, rules=None, scrapes=None, every_seconds=1
    ):
        """`rules`: their text; every `for:` that is left in it is as it stands.

        `scrapes`: whole scrape_configs, in the place of `target_files`.
        """
        self.folder = Path(folder)
        self.every_seconds = every_seconds
        self.scrapes = scrapes or [
            {
                "job_name": "elasticdl",
                "file_sd_configs": [
                    {
                        "files": [str(file) for file in target_files],
                        "refresh_interval": "1s",
                    }
                ],
            }
        ]
        self.rules = RULES.read_text() if rules is None else rules
        self.process = None

    def __enter__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "rules.yaml").write_text(self.rules)
        settings = {
            "global": {
                "scrape_interval": f"{self.every_seconds}s",
                "scrape_timeout": f"{self.every_seconds}s",
                "evaluation_interval": f"{self.every_seconds}s",
            },
            "rule_files": ["rules.yaml"],
            "scrape_configs": self.scrapes,
        }
        file = self.folder / "prometheus.yaml"
        file.write_text(yaml.safe_dump(settings))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.url = f"http://{address}"
        self.log = self.folder / "prometheus.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={file}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    f"--web.listen-address={address}",
                    "--log.level=warn",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.wait_until(self.is_ready, "a Prometheus that is ready")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def wait_until(self, condition, what, *, limit_seconds=90.0):
        """Wait for a truth; return it. The limit is for hung tests alone."""
        end = time.monotonic() + limit_seconds
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.read_text()
            if found := condition():
                return found
            time.sleep(0.2)
        raise AssertionError(f"not within {limit_seconds:g} s: {what}")

    def get(self, path, **parameters):
        """Return `data` of the API's answer."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def series(self, expression, *, at=None):
        """Return (labels, value) of each series of an instant query."""
        when = {} if at is None else {"time": at}
        found = self.get("query", query=expression, **when)
        assert found["resultType"] == "vector", expression
        return [(one["metric"], float(one["value"][1])) for one in found["result"]]

    def value(self, expression, *, at=None):
        """Return the one value of an instant query."""
        ((_, value),) = self.series(expression, at=at)
        return value

    def over_time(self, expression, start, end, step=1.0):
        """Return (labels, [(time, value)]) of each series of a range query."""
        found = self.get(
            "query_range", query=expression, start=start, end=end, step=step
        )
        return [
            (one["metric"], [(at, float(value)) for at, value in one["values"]])
            for one in found["result"]
        ]

    def firing(self):
        """Return the alerts that fire, with labels and annotations, by their names."""
        return {
            alert["labels"]["alertname"]: alert
            for alert in self.get("alerts")["alerts"]
            if alert["state"] == "firing"
        }

    def wait_for_alert(self, name):
        """Wait until an alert fires; return it."""
        return self.wait_until(lambda: self.firing().get(name), f"the alert {name}")
