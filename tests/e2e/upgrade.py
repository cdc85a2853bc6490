"""From the chart and images of an older commit to this tree's, with jobs running.

    python -m tests.e2e.upgrade COMMIT      # KEEP=1 leaves the cluster up

In the cluster of tests/e2e/cluster, as root. Not a part of `make e2e`: it builds the
images of another commit. Two jobs begin with the old platform, which is upgraded then.
One job goes on as it was, the release of the other one is upgraded too. Run it before a
release whose chart, journal or checkpoints changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from elasticdl.job.status import JobStatus
from elasticdl.job.words import JobState
from helm_python import HelmError
from ruamel.yaml import YAML

from tests.e2e.jobs.conftest import make_namespace
from tests.e2e.jobs.job import JobInCluster
from tests.e2e.kube import Kube, wait_until
from tests.e2e.own_cluster import ROOT, OwnCluster
from tests.e2e.releases import Helm, Values, merged, values_file

NAMESPACE = "elasticdl-e2e-upgrade"
WORKERS = 2
SMALL = {"cpu": 0.5, "memory": "1536Mi"}
LONG = {
    "training": {"epochs": 100_000},
    "checkpoint": {"everySeconds": 5},
    "ps": {"replicas": 1},
    "worker": {"replicas": WORKERS, "resources": SMALL},
}
# Of charts in which they could not be set.
OLD_CLASSES = {
    "high": {
        "name": "high",
        "value": 1_000_000,
        "preemptionPolicy": "PreemptLowerPriority",
    },
    "low": {"name": "low", "value": 1_000},
}
_begun = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _begun:6.0f} s  {text}", flush=True)


@contextmanager
def tree_of(commit: str) -> Iterator[tuple[Path, str]]:
    """Give the files of a commit, and its short name."""
    git = ["git", "-C", str(ROOT)]
    short = subprocess.check_output(
        [*git, "rev-parse", "--short=12", f"{commit}^{{commit}}"], text=True
    ).strip()
    with tempfile.TemporaryDirectory(prefix="elasticdl-old-") as folder:
        tree = Path(folder) / "tree"
        subprocess.check_call(
            [*git, "worktree", "add", "--quiet", "--detach", str(tree), short]
        )
        try:
            yield tree, short
        finally:
            subprocess.check_call([*git, "worktree", "remove", "--force", str(tree)])


def status_of(job: JobInCluster) -> JobStatus:
    status = job.status()
    assert status is not None, f"{job.name} has no status"
    return status


def begin(kube: Kube, helm: Helm, name: str, images: Values) -> JobInCluster:
    """Install a job; return once it trains and has a checkpoint."""
    values = merged(values_file("digits.yaml"), {"job": {"name": name, **LONG}})
    job = JobInCluster(kube, helm, {**values, "images": images}).install()
    job.wait_running("worker", WORKERS, seconds=300)
    job.wait_status(
        "epochs and a checkpoint",
        lambda s: s.progress.epoch > 3 and s.checkpoint_version,
        seconds=300,
    )
    say(f"{name}: trains, with images {images['tag']}")
    return job


def end(job: JobInCluster) -> None:
    """Let a job end; it has to end well."""
    job.end_after_this_epoch()
    report = job.wait_succeeded()
    accuracy = report.metrics["accuracy"]
    assert accuracy is not None
    assert accuracy > 0.95, accuracy
    say(
        f"{job.name}: Complete after {report.epochs} epochs, accuracy {accuracy:.3f}, "
        f"{report.master_restarts} restarts of its master, {report.rewinds} rewinds"
    )


def images_in(job: JobInCluster) -> set[str]:
    return {
        pod["spec"]["containers"][0]["image"].rpartition(":")[2]
        for pod in job.pods().values()
        if pod["status"]["phase"] == "Running"
    }


def audit(job: JobInCluster, own: OwnCluster) -> None:
    words = ["audit", job.name, "--namespace", job.kube.namespace]
    done = subprocess.run(
        [sys.executable, "-m", "elasticdl.cli.main", *words],
        env={**os.environ, "KUBECONFIG": str(own.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    say(f"{job.name}: the audit is clean")


def stays_as_it_is(job: JobInCluster, before: dict[str, str]) -> None:
    """A job of the old release under the new platform: nobody is restarted."""
    job.wait_steps(200)
    assert job.uids() == before, "pods were replaced"
    say(f"{job.name}: trains on in the same pods")
    # What its platform has to allow still: another worker, another master.
    job.delete_pod("worker-0")
    wait_until(
        "another worker",
        lambda: job.in_phase("worker") == {"worker-1", f"worker-{WORKERS}"},
        seconds=180,
    )
    (master,) = job.pods("master")
    generation = status_of(job).master_generation
    job.delete_pod(master)
    job.wait_status(
        "another master", lambda s: s.master_generation > generation, seconds=180
    )
    job.wait_steps(50)
    say(f"{job.name}: a lost worker and a lost master are replaced, with the old image")


def moves(job: JobInCluster, helm: Helm, images: Values) -> JobInCluster:
    """Upgrade the release of a running job, to this chart and these images."""
    before, uids = status_of(job), set(job.uids().values())
    there = before.checkpoint_version
    assert there
    values = merged(job.values, {"images": images})
    with pytest.raises(HelmError, match="raise `run` to 2 with it"):
        helm.upgrade(job.name, values)
    say(f"{job.name}: without `run` the chart refuses it")
    assert set(job.uids().values()) == uids
    values = merged(values, {"run": 2})
    helm.upgrade(job.name, values)
    upgraded = JobInCluster(job.kube, helm, values)
    wait_until(
        "all pods are other ones",
        lambda: (
            not uids & set(upgraded.uids().values())
            and images_in(upgraded) == {images["tag"]}
        ),
        seconds=300,
    )
    upgraded.wait_running("worker", WORKERS, seconds=300)
    after = upgraded.wait_status(
        "it trains",
        lambda s: (
            s.master_generation > before.master_generation
            and s.state is JobState.RUNNING
            and s.last_loss
        ),
        seconds=300,
    )
    assert after.progress.version >= there, (after.progress, there)
    assert after.progress.epoch > 0
    upgraded.wait_steps(200)
    say(
        f"{job.name}: all pods are new, with images {images['tag']}; it goes on from "
        f"version {there} (epoch {before.progress.epoch}), now "
        f"{after.progress.version} (epoch {after.progress.epoch})"
    )
    return upgraded


def classes_of(chart: Path) -> Values:
    """Return the classes that a chart makes, which its running pods go by.

    A platform that makes others takes them away, and nothing of its jobs can be
    replaced (docs/priorities.md).
    """
    said = YAML(typ="safe").load(chart / "values.yaml").get("priorityClasses")
    if not isinstance(said, dict) or "high" not in said:
        return OLD_CLASSES
    return {role: said[role] for role in OLD_CLASSES}


def upgrade(own: OwnCluster, old_chart: Path, old_tag: str, new_tag: str) -> None:
    """Do all of it in one namespace."""
    kube = Kube(own.kubectl, "", NAMESPACE, own.kubeconfig)
    old = Helm(NAMESPACE, "", own.kubeconfig, old_chart)
    new = Helm(NAMESPACE, "", own.kubeconfig)
    registry = {"registry": own.registry}
    classes = classes_of(old_chart)
    make_namespace(kube)
    try:
        old.install("elasticdl", {})
        say(f"the old platform, of {old_tag}")
        stay, move = (
            begin(kube, old, name, {**registry, "tag": old_tag})
            for name in ("stays", "moves")
        )
        before = stay.uids()
        new.upgrade("elasticdl", {"images": registry, "priorityClasses": classes})
        say("the platform is this tree's")
        stays_as_it_is(stay, before)
        moved = moves(move, new, {**registry, "tag": new_tag})
        end(moved)
        audit(moved, own)
        end(stay)
        audit(stay, own)
    except AssertionError:
        print(kube.dump(), flush=True)
        raise
    finally:
        for release in ("stays", "moves", "elasticdl"):
            new.uninstall(release)
        for one in classes.values():
            kube.delete("priorityclass", one["name"])
        kube.delete("namespace", NAMESPACE, wait=True)


def main(commit: str) -> None:
    """Bring up what is needed, and take down what was brought up."""
    own = OwnCluster()
    brought_up = own.up()
    try:
        with tree_of(commit) as (tree, short):
            new_tag, old_tag = own.push_images(), f"commit-{short}"
            own.push_images_of(tree, old_tag)
            say(f"images {old_tag} and {new_tag}")
            upgrade(own, tree / "charts" / "elasticdl", old_tag, new_tag)
    finally:
        if brought_up and not os.environ.get("KEEP"):
            own.down()


if __name__ == "__main__":
    main(sys.argv[1])
