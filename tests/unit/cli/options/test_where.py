"""Which job a command means, and where a job runs: here, or in a cluster."""

import json
import os
import subprocess
import sys

import pytest
from elasticdl.cli import main as cli
from elasticdl.client.cluster.records import Record, remember
from elasticdl.errors import ExitCode

JOB = """\
kind: job
job:
  name: digits
  model: {definition: digits.cnn.custom_model}
  data: {training: d}
"""
IMAGES = "images: {registry: registry.example}\n"


@pytest.fixture
def jobs_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("ELASTICDL_JOBS_DIR", str(tmp_path / "jobs"))
    return tmp_path / "jobs"


def local_job(jobs_dir, name="digits"):
    (jobs_dir / name).mkdir(parents=True)
    (jobs_dir / name / "job.yaml").write_text(JOB)


def submitted(jobs_dir, name="digits"):
    remember(jobs_dir, Record(name, "ml", "no-such-context", 1.0))


def test_commands_on_jobs_of_this_machine_never_load_the_kubernetes_client(jobs_dir):
    local_job(jobs_dir)
    submitted(jobs_dir, "mnist")
    code = (
        "import sys; from elasticdl.cli.main import main;"
        "codes = [main(['list']), main(['status', 'digits'])];"
        "print(codes, [m for m in sys.modules if m.split('.')[0] in"
        " ('kubernetes', 'helm_python', 'urllib3')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "KUBECONFIG": "/no/such/file"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[0, 0] []"


def test_list_names_what_was_submitted_to_clusters(jobs_dir, capsys):
    local_job(jobs_dir)
    submitted(jobs_dir, "mnist")
    assert cli.main(["list"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert "digits" in out
    assert "submitted to clusters: mnist (ml); `elasticdl list -A`" in err


def test_a_name_in_both_places_is_the_one_here_and_says_so(jobs_dir, capsys):
    local_job(jobs_dir)
    submitted(jobs_dir)
    assert cli.main(["status", "digits"]) == ExitCode.OK
    assert "`elasticdl status digits -n ml`" in capsys.readouterr().err


def test_a_job_that_was_only_submitted_is_looked_for_in_its_cluster(jobs_dir, capsys):
    submitted(jobs_dir)
    assert cli.main(["status", "digits"]) == ExitCode.PLATFORM
    assert "error: no" in capsys.readouterr().err


def test_fault_injection_is_for_this_machine_and_says_what_is_for_a_cluster(
    jobs_dir, capsys
):
    submitted(jobs_dir)
    assert cli.main(["kill", "digits", "worker-0"]) == ExitCode.JOB_FAILED
    assert "kubectl -n ml delete pod elasticdl-digits-" in capsys.readouterr().err


def test_what_only_a_cluster_has_is_refused_here(jobs_dir, capsys):
    local_job(jobs_dir)
    assert cli.main(["logs", "digits", "master", "-p"]) == ExitCode.JOB_FAILED
    assert "leave --previous out" in capsys.readouterr().err
    assert cli.main(["stop", "digits", "--remove"]) == ExitCode.JOB_FAILED
    assert "--remove is for jobs in a cluster" in capsys.readouterr().err


@pytest.fixture
def chart(tmp_path):
    """A chart that renders what it was given."""
    root = tmp_path / "chart"
    (root / "templates").mkdir(parents=True)
    (root / "Chart.yaml").write_text(
        "apiVersion: v2\nname: elasticdl\nversion: 1.0.0\ntype: application\n"
    )
    (root / "values.yaml").write_text("{}\n")
    (root / "templates" / "all.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: given}\ndata:\n"
        "  namespace: {{ .Release.Namespace }}\n"
        "  release: {{ .Release.Name }}\n"
        "  values: {{ .Values | toJson | quote }}\n"
    )
    return root


def rendered(capsys, *arguments):
    from ruamel.yaml import YAML

    assert cli.main([*arguments, "--yaml", "-"]) == ExitCode.OK
    data = YAML(typ="safe").load(capsys.readouterr().out)["data"]
    return data["namespace"], data["release"], json.loads(data["values"])


def test_yaml_prints_what_would_be_applied_of_a_values_file(
    tmp_path, jobs_dir, chart, capsys
):
    file = tmp_path / "digits.yaml"
    file.write_text(f"{JOB}{IMAGES}state: {{claimName: mine}}\n")
    namespace, release, values = rendered(
        capsys, "train", "-f", str(file), "-n", "ml", "--chart", str(chart)
    )
    assert (namespace, release) == ("ml", "digits")
    assert values["state"] == {"claimName": "mine"}
    assert values["job"]["namespace"] == "ml"
    assert not jobs_dir.exists()  # nothing was run, nothing was submitted


def test_an_evaluation_in_a_cluster_begins_from_the_jobs_folder_there(
    tmp_path, jobs_dir, chart, capsys
):
    file = tmp_path / "digits.yaml"
    text = JOB.replace("training: d", "training: d, validation: v")
    file.write_text(f"{text}{IMAGES}")
    _, release, values = rendered(
        capsys, "evaluate", "-f", str(file), "-n", "ml", "--chart", str(chart)
    )
    assert release == "digits-evaluate"
    assert values["job"]["checkpoint"]["initFrom"] == (
        "/data/.elasticdl/jobs/ml/digits/checkpoints"
    )


def test_yaml_into_a_file_says_how_to_apply_it(tmp_path, jobs_dir, chart, capsys):
    file, out = tmp_path / "digits.yaml", tmp_path / "out.yaml"
    file.write_text(f"{JOB}{IMAGES}")
    code = cli.main(
        ["train", "-f", str(file), "--yaml", str(out), "--chart", str(chart)]
    )
    assert code == ExitCode.OK
    assert "kind: ConfigMap" in out.read_text()
    assert f"1 object; apply with kubectl apply -f {out}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--local", "--cluster"), "--local: got it beside --cluster"),
        (("--local", "-n", "ml"), "--local: got it beside --namespace"),
        (("--cluster", "--restart"), "--restart: got it for a job in a cluster"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    tmp_path, jobs_dir, capsys, arguments, part
):
    file = tmp_path / "digits.yaml"
    file.write_text(JOB)
    assert cli.main(["train", "-f", str(file), *arguments]) == ExitCode.SPEC
    assert part in capsys.readouterr().err


def test_yaml_of_stock_images_without_a_registry_is_refused(
    tmp_path, jobs_dir, chart, capsys
):
    file = tmp_path / "digits.yaml"
    file.write_text(JOB)
    words = ["train", "-f", str(file), "--yaml", "-", "--chart", str(chart)]
    assert cli.main(words) == ExitCode.SPEC
    said = capsys.readouterr()
    assert "images.registry: got nothing, expected the registry" in said.err
    assert not said.out
