"""SQL statements in a cluster: the source's URL is in a Secret, models on the claim."""

import os
import subprocess
import sys

import pytest
from elasticdl.job.names import ENV_SQL_URL

from tests.e2e.kube import wait_until

SECRET = "s3cr3t"
_MAKE = f"""
import sqlite3
from elasticdl.data.making.employee import employees
columns = employees(2000, seed=1).columns
with sqlite3.connect("/data/{SECRET}.sqlite") as shop:
    shop.execute(f"CREATE TABLE employee ({{', '.join(columns)}})")
    marks = ", ".join("?" * len(columns))
    rows = zip(*columns.values(), strict=True)
    shop.executemany(f"INSERT INTO employee VALUES ({{marks}})", rows)
"""


# A cell of a notebook, as the magic gives it.
_CELL = """
import sys
from elasticdl.sql.notebook import magic
answers = magic(sys.argv[1], "SELECT count(*) AS n FROM guesses")
print(answers.columns, answers.rows)
"""


def _make_database(kube, image: str) -> None:
    """Write a database on the claim, by a pod as restricted as those of jobs."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "shop"},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "runAsGroup": 10001,
                "fsGroup": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "command": ["python", "-P", "-c", _MAKE],
                    "securityContext": security,
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "volumes": [
                {
                    "name": "data",
                    "persistentVolumeClaim": {"claimName": "fileserver-claim"},
                }
            ],
        },
    }
    kube.apply(pod)

    def ended() -> bool:
        found = kube.get("pod", "shop")
        assert found is not None
        phase = found["status"].get("phase")
        assert phase != "Failed", kube.run("logs", "shop")
        return phase == "Succeeded"

    wait_until("the database is made", ended, seconds=180)
    # It names the database itself.
    kube.delete("pod", "shop")


@pytest.mark.soak
def test_statements_run_in_a_cluster_with_their_url_in_a_secret(
    kube, elasticdl, images, platform
):
    _make_database(kube, images.of("worker"))
    kube.run(
        "create", "secret", "generic", "shop",
        f"--from-literal={ENV_SQL_URL}=sqlite:////data/{SECRET}.sqlite",
    )  # fmt: skip

    pods = (
        "--set", f"images.registry={images.registry}",
        "--set", f"images.tag={images.tag}",
        "--set", "job.worker.resources.cpu=0.25",
        "--set", "job.worker.resources.memory=1200Mi",
    )  # fmt: skip

    def sql(statements: str, code: int = 0) -> str:
        given = ("--secret", "shop", "--db", "sqlite://", statements)
        return elasticdl("sql", *given, *pods, code=code)

    said = sql(
        "SELECT * FROM employee TO TRAIN DNNClassifier WITH train.epoch = 2 "
        "LABEL income INTO my_model"
    )
    assert "my_model@1: " in said
    assert "accuracy 0." in said
    said = sql(
        "SELECT * FROM employee TO PREDICT guesses USING my_model;"
        "SELECT count(*) AS n, count(DISTINCT rowid) AS d FROM guesses"
    )
    assert "2,000 rows with `prediction` and `probability` in guesses" in said
    said = sql("SELECT * FROM employee LABEL incom INTO other", code=3)
    assert "line 1, column 30: the query has no column `incom`" in said

    line = (
        f"-n {kube.namespace} --secret shop --db sqlite:// "
        f"--set images.registry={images.registry} --set images.tag={images.tag} "
        "--set job.worker.resources.cpu=0.25 --set job.worker.resources.memory=1200Mi"
    )
    environ = dict(os.environ)
    if platform.kubeconfig:
        environ["KUBECONFIG"] = str(platform.kubeconfig)
    else:
        line += f" --context {platform.context}"
    said = subprocess.check_output(
        [sys.executable, "-c", _CELL, line], env=environ, text=True, timeout=300
    )
    assert said.splitlines()[-1] == "('n',) ((2000,),)"

    assert "my_model@1" in elasticdl("models", "list", *pods)
    assert "label: income" in elasticdl("models", "show", "my_model", *pods)
    said = elasticdl("models", "export", "my_model", "out", *pods, code=3)
    assert "kubectl cp" in said

    # Nothing that Kubernetes or the volume keeps names the source.
    objects = kube.run("get", "configmaps,jobs,pods", "--output=yaml")
    assert SECRET not in objects
