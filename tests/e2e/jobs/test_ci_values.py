"""The chart as chart-testing sees it: `ct lint` and `ct install` with every ci file."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.e2e.own_cluster import ROOT

yaml = YAML()


@pytest.fixture
def repository(tmp_path, images):
    """What `ct` reads, with the images under test in the job's file."""
    for name in ("charts", ".ct"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "ct.yaml", tmp_path)
    job = tmp_path / "charts" / "elasticdl" / "ci" / "job-values.yaml"
    values = yaml.load(job)
    values["images"] = {"registry": images.registry, "tag": images.tag}
    yaml.dump(values, job)
    return tmp_path


@pytest.fixture
def ct(platform, repository):
    """Runs chart-testing there; returns what it prints."""
    if platform.own is None:
        pytest.skip("helm and ct are built with the own cluster")
    platform.own.script("build-helm")
    programs = Path(platform.kubectl).parent

    def run(*words: str) -> str:
        done = subprocess.run(
            [programs / "ct", *words, "--config=ct.yaml", "--all"],
            cwd=repository,
            env={
                **os.environ,
                "PATH": f"{programs}:{os.environ['PATH']}",
                "KUBECONFIG": str(platform.kubeconfig),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


def test_ct_lint_and_ct_install_take_every_ci_values_file(ct, kube, repository):
    files = [path.name for path in repository.glob("charts/elasticdl/ci/*-values.yaml")]
    assert len(files) == 2
    shown = ct("lint")
    assert "All charts linted successfully" in shown
    assert all(name in shown for name in files)
    # The end of the job is waited for: it trains, on real pods.
    shown = ct(
        "install",
        f"--namespace={kube.namespace}",
        # Those for values go to `helm install` alone; others to `helm uninstall` too.
        "--helm-extra-set-args=--wait-for-jobs",
    )
    assert "All charts installed successfully" in shown
    assert all(name in shown for name in files)
    # Each was taken away again; the platform of the namespace is still there.
    assert not kube.list("jobs")
    assert kube.get("serviceaccount", "elasticdl-master")
