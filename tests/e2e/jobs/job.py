"""A job in a cluster as tests see it: its pods, its status, its end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from elasticdl.job.grant import Grant, format_grant
from elasticdl.job.names import ANNOTATION_WORKERS
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.words import JobState

from tests.e2e.kube import Json, Kube, KubectlError, wait_until
from tests.e2e.releases import Helm, Values, merged

# A job of a minute, on a machine that may be many times slower.
END_SECONDS = 600.0


@dataclass
class JobInCluster:
    """One release; `values` is what it was last installed or upgraded with."""

    kube: Kube
    helm: Helm
    values: Values = field(repr=False)

    @property
    def name(self) -> str:
        return self.values["job"]["name"]

    @property
    def batch_job(self) -> str:
        """The Job of the master, of the run that the values say."""
        run = self.values.get("run", 1)
        return f"elasticdl-{self.name}-master" + (f"-{run}" if run > 1 else "")

    def install(self) -> JobInCluster:
        self.helm.install(self.name, self.values)
        return self

    def upgrade(self, **changes: object) -> None:
        self.values = merged(self.values, {"job": changes})
        self.helm.upgrade(self.name, self.values)

    def grant(self, workers: int, *, why: str) -> None:
        """Give it so many workers for an hour, as a controller does."""
        given = Grant(workers, until=time.time() + 3600, by="test", why=why)
        text = format_grant(given)
        self.kube.run(
            "annotate", "--overwrite", f"configmap/elasticdl-{self.name}",
            f"{ANNOTATION_WORKERS}={text}",
        )  # fmt: skip

    def end_after_this_epoch(self) -> None:
        """Let a job end that was given more epochs than a test has time for."""
        status = self.status()
        assert status is not None
        self.upgrade(training={"epochs": status.progress.epoch + 2})

    def uninstall(self) -> None:
        self.helm.uninstall(self.name)

    def pods(self, role: str = "") -> dict[str, Json]:
        """Return pods by name without `elasticdl-JOB-`, but for those that leave."""
        selector = f"elasticdl-job-name={self.name}"
        selector += f",elasticdl-replica-type={role}" if role else ""
        prefix = f"elasticdl-{self.name}-"
        return {
            pod["metadata"]["name"].removeprefix(prefix): pod
            for pod in self.kube.list("pods", selector)
            if "deletionTimestamp" not in pod["metadata"]
        }

    def phases(self, role: str) -> dict[str, str]:
        return {name: pod["status"]["phase"] for name, pod in self.pods(role).items()}

    def in_phase(self, role: str, phase: str = "Running") -> set[str]:
        return {name for name, there in self.phases(role).items() if there == phase}

    def started(self, role: str) -> dict[str, float]:
        """Return when each running pod's process started: Unix time, whole seconds."""
        states = {
            name: pod["status"]["containerStatuses"][0]["state"]
            for name, pod in self.pods(role).items()
            if pod["status"]["phase"] == "Running"
        }
        return {
            name: datetime.fromisoformat(state["running"]["startedAt"]).timestamp()
            for name, state in states.items()
            if "running" in state
        }

    def wait_running(self, role: str, count: int, *, seconds: float = 120) -> set[str]:
        """Return the names of that many running pods, once no more and no fewer are."""

        def probe() -> set[str]:
            running = self.in_phase(role)
            return running if len(running) == count else set()

        return wait_until(
            f"{count} running pods of role {role}", probe, seconds=seconds
        )

    def delete_pod(self, name: str) -> None:
        self.kube.delete("pod", f"elasticdl-{self.name}-{name}")

    def status(self) -> JobStatus | None:
        text = self._shown("status.json")
        return JobStatus.model_validate_json(text) if text else None

    def wait_status(self, what, probe, *, seconds: float = 120) -> Any:
        """Return the first status for which `probe(status)` is true."""

        def look() -> JobStatus | None:
            status = self.status()
            return status if status is not None and probe(status) else None

        return wait_until(what, look, seconds=seconds)

    def wait_steps(self, count: int, *, seconds: float = 180) -> JobStatus:
        """Wait until that many steps more than now are done."""
        first = self.status()
        end = count + (first.progress.steps if first else 0)
        return self.wait_status(
            f"{end} steps", lambda s: s.progress.steps >= end, seconds=seconds
        )

    def wait_ended(self, *, seconds: float = END_SECONDS) -> JobReport:
        """Return the report, once the master's Job is over."""
        wait_until("the end of the job", self._conditions, seconds=seconds)
        text = self._shown("report.json")
        assert text, f"job {self.name} ended without a report: {self._conditions()}"
        return JobReport.model_validate_json(text)

    def wait_succeeded(self, *, seconds: float = END_SECONDS) -> JobReport:
        report = self.wait_ended(seconds=seconds)
        assert report.status is JobState.SUCCEEDED, report.message
        assert "Complete" in self._conditions()
        return report

    def uids(self, role: str = "") -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods(role).items()}

    def master_log(self) -> str:
        return self.kube.run("logs", f"job/{self.batch_job}")

    def log(self, pod: str) -> str:
        return self.kube.run("logs", f"elasticdl-{self.name}-{pod}")

    def notices(self) -> list[str]:
        """Return the Events on the job."""
        return self.kube.events(self.batch_job)

    def _conditions(self) -> set[str]:
        job = self.kube.get("job", self.batch_job)
        found = (job or {}).get("status", {}).get("conditions", [])
        ends = {"Complete", "Failed"}
        return {c["type"] for c in found if c["status"] == "True"} & ends

    def _shown(self, key: str) -> str:
        try:
            found = self.kube.get("configmap", f"elasticdl-{self.name}-status")
        except KubectlError:
            return ""  # the API server may be away on purpose
        return (found or {}).get("data", {}).get(key, "")
