"""No process of a pod, or of a laptop, imports from the folder that it starts in.

Workers of all jobs can write the claim, where pods of master and PS start: a file there
that is named as a module of Python, or a folder as this package, must stay unread.
"""

import os
import subprocess
import sys

import pytest
import yaml
from elasticdl.client.cluster.errand import errand_pod
from elasticdl.data.making import builtin
from elasticdl.errors import DataError
from elasticdl.job.names import JobDir, Role
from elasticdl.master.pod import make_named
from elasticdl.runner.local.table import role_command

from tests.chart.rendering import container, env, job, merged, objects, of_kind, pods

POISON = "import os\nos.write(1, b'HIJACKED')\nos._exit(42)\n"
# Modules that each of them imports: of Python, of this package, of TensorBoard.
PLANTED = ("hmac.py", "argparse.py", "elasticdl/__init__.py", "tensorboard/__init__.py")
MONITORED = {"tensorboard": {"enabled": True}}


@pytest.fixture
def claim(tmp_path):
    for name in PLANTED:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(POISON)
    return tmp_path


def started(command, folder):
    """Start what a pod starts there, with this Python; what it says."""
    done = subprocess.run(
        [sys.executable if word == "python" else word for word in command],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 42
    return done.stdout + done.stderr


@pytest.mark.parametrize("role", ["master", "ps", "worker"])
def test_a_role_in_a_pod_ignores_what_lies_on_the_claim(role, claim):
    command = container(pods(objects(job()))[role])["command"]
    assert "is not set; roles are started by" in started(command, claim)


@pytest.mark.parametrize("role", Role)
def test_a_role_on_a_laptop_ignores_what_lies_in_the_current_folder(role, claim):
    assert "is not set; roles are started by" in started(role_command(role), claim)


def test_the_exporter_ignores_it(claim):
    found = objects({"monitoring": {"exporter": {"enabled": True}}})
    main = container(of_kind(found, "Deployment")["spec"]["template"])
    said = started([*main["command"], "--help"], claim)
    assert "Shows what a cluster has for pods" in said


def test_tensorboard_ignores_it(claim):
    found = objects(job(monitoring=MONITORED))
    main = container(of_kind(found, "Deployment")["spec"]["template"])
    said = started([*main["command"], "--version"], claim)
    assert "HIJACKED" not in said
    assert said[0].isdigit()


def test_an_audit_ignores_it(claim):
    found = of_kind(objects(job()), "ConfigMap")
    found["metadata"]["uid"] = "u1"
    words = ["audit", "digits", "--jobs-dir", str(claim)]
    pod = errand_pod(found, "digits", "audit", lambda folder: words)
    (main,) = pod["spec"]["containers"]
    said = started([*main["command"], *main["args"]], claim)
    assert "digits" in said
    assert "HIJACKED" not in said


def test_a_ps_takes_no_settings_of_numba_from_it(claim):
    # Kernels in that folder would be run; with PyYAML, as worker images have it.
    (claim / ".numba_config.yaml").write_text("cache_dir: kernels-of-somebody\n")
    program = (
        "import yaml; from elasticdl.ps import main; main.set_up_numba(); "
        "from numba.core import config; config.reload_config(); "
        "print('cache is', repr(config.CACHE_DIR), yaml.safe_load('a'))"
    )
    said = started(["python", "-P", "-c", program], claim)
    assert "cache is '' a" in said


def test_what_fetches_a_data_set_ignores_it(claim, monkeypatch):
    monkeypatch.chdir(claim)
    # It ends at the import of Keras, whichever this Python has.
    (claim / "keras.py").write_text("raise Exception('HIJACKED')")
    monkeypatch.setenv("PYTHONPATH", str(claim / "first"))
    (claim / "first").mkdir()
    (claim / "first" / "keras.py").write_text("raise Exception('no keras here')")
    with pytest.raises(DataError, match="no keras here"):
        builtin.load_arrays("mnist")


# PYTHONPATH may name a folder of it.

SHARED = {"PYTHONPATH": "/data/code", "REGION": "eu"}


def test_a_path_of_imports_for_all_roles_is_that_of_workers_alone():
    values = job()
    values["job"]["env"] = SHARED
    made = {role: env(pod) for role, pod in pods(objects(values)).items()}
    assert {role for role, said in made.items() if "PYTHONPATH" in said} == {"worker"}
    assert all(said["REGION"] == "eu" for said in made.values())
    assert made["worker"]["PYTHONPATH"] == "/data/code"


@pytest.mark.parametrize("role", ["master", "ps"])
def test_a_path_of_imports_for_one_role_is_that_roles(role):
    values = job()
    values["job"] |= {"env": SHARED, role: {"env": {"PYTHONPATH": "/opt/more"}}}
    assert env(pods(objects(values))[role])["PYTHONPATH"] == "/opt/more"


# What workers see of the claim.


def seen(role, **state):
    """Return the volume's part that is mounted, by path."""
    pod = pods(objects(job(state=state)))[role]
    return {
        mount["mountPath"]: (mount["name"], mount.get("subPath", ""))
        for mount in container(pod)["volumeMounts"]
        if mount["mountPath"].startswith("/data")
    }


OWN = ".elasticdl/jobs/ml/digits"


HIDDEN = {
    "/data": ("elasticdl-state", ""),
    # Not below it: a folder around what is mounted can be moved away, and the next pod
    # would see all of them there.
    "/data/.elasticdl": ("elasticdl-hidden", ""),
    f"/data/{OWN}": ("elasticdl-state", OWN),
}


@pytest.mark.parametrize("role", ["worker", "ps"])
def test_a_worker_sees_its_own_jobs_folder_and_no_other(role):
    """Its PS neither, which loads what it finds in the folder that workers write."""
    assert seen(role) == HIDDEN
    assert seen(role, hideOtherJobs=False) == {"/data": HIDDEN["/data"]}
    assert seen("master") == {"/data": HIDDEN["/data"]}


TEACHER = ".elasticdl/jobs/ml/teacher"


@pytest.mark.parametrize(
    "said",
    [
        {"checkpoint": {"initFrom": f"/data/{TEACHER}/checkpoints/version-9"}},
        {"checkpoint": {"initFrom": TEACHER}},
        {"data": {"training": f"/data/{TEACHER}/outputs", "validation": TEACHER}},
        {"worker": {"env": {"TEACHER": f"from {TEACHER} on"}}},
        {"worker": {"env": {"BOTH": f"/data/{TEACHER}:/data/.elasticdl/jobs/ml/b,c"}}},
        {"model": {"params": {"teacher": f"[{TEACHER}]"}}},
    ],
)
def test_it_reads_the_folder_of_another_job_that_its_values_name(said):
    values = job()
    values["job"] = merged(values["job"], said)
    mounts = {
        mount["mountPath"]: mount
        for mount in container(pods(objects(values))["worker"])["volumeMounts"]
    }
    assert mounts[f"/data/{TEACHER}"] == {
        "name": "elasticdl-state",
        "mountPath": f"/data/{TEACHER}",
        "subPath": TEACHER,
        "readOnly": True,
    }
    assert "readOnly" not in mounts[f"/data/{OWN}"]
    assert mounts["/data/.elasticdl"]["name"] == "elasticdl-hidden"


def test_its_own_folder_is_writable_where_its_values_name_it():
    values = job()
    values["job"]["export"] = {"dir": f"/data/{OWN}/export"}
    assert {
        mount["mountPath"]: (mount["name"], mount.get("subPath", ""))
        for mount in container(pods(objects(values))["worker"])["volumeMounts"]
        if mount["mountPath"].startswith("/data") and "readOnly" not in mount
    } == HIDDEN


def test_it_reads_a_run_of_another_job_that_was_moved_aside():
    values = job()
    values["job"]["checkpoint"] = {"initFrom": f"/data/{TEACHER}~1/checkpoints"}
    mounts = container(pods(objects(values))["worker"])["volumeMounts"]
    (aside,) = (one for one in mounts if "teacher" in one["mountPath"])
    assert aside["subPath"] == f"{TEACHER}~1"


def test_a_platforms_environment_may_name_a_folder_too():
    said = {
        "pods": {"common": {"env": [{"name": "BASE", "value": f"/data/{TEACHER}"}]}}
    }
    made = pods(objects(job(jobs={"defaults": said})))["worker"]
    paths = [one["mountPath"] for one in container(made)["volumeMounts"]]
    assert f"/data/{TEACHER}" in paths


@pytest.mark.parametrize(
    "written",
    [
        {"export": {"dir": f"/data/{TEACHER}/export"}},
        {"checkpoint": {"dir": f"{TEACHER}/again"}},
        {"predictionOutput": f"{TEACHER}/predictions"},
    ],
)
def test_it_writes_to_the_folder_of_another_job_where_its_values_say_so(written):
    values = job()
    values["job"] = merged(values["job"], written)
    mounts = container(pods(objects(values))["worker"])["volumeMounts"]
    (other,) = (one for one in mounts if one["mountPath"] == f"/data/{TEACHER}")
    assert "readOnly" not in other


@pytest.mark.parametrize(
    "path",
    [
        ".elasticdl/jobs/ml/*/outputs",
        ".elasticdl/jobs/ml/a*",
        ".elasticdl/jobs/ml/{a,b}/outputs",
        ".elasticdl/jobs/ml/a/../b",
        ".elasticdl//jobs/ml/a",
        ".elasticdl/jobs",
        "/data/.elasticdl",
    ],
)
def test_it_sees_all_folders_where_its_values_name_several_at_once(path):
    values = job()
    values["job"]["data"]["validation"] = path
    mounts = container(pods(objects(values))["worker"])["volumeMounts"]
    assert not [one for one in mounts if ".elasticdl" in one["mountPath"]]


def test_a_second_mount_of_the_claim_hides_the_same():
    values = job(state={"subPath": "team"})
    values["job"]["volumes"] = [
        {"claimName": "fileserver-claim", "mountPath": "/shared", "subPath": "team"},
        {"claimName": "fileserver-claim", "mountPath": "/sets", "subPath": "sets"},
    ]
    found = {
        mount["mountPath"]: (mount["name"], mount.get("subPath", ""))
        for mount in container(pods(objects(values))["worker"])["volumeMounts"]
    }
    assert found["/shared/.elasticdl"] == ("elasticdl-hidden", "")
    assert found[f"/shared/{OWN}"][1] == found[f"/data/{OWN}"][1] == f"team/{OWN}"
    assert not [path for path in found if path.startswith("/sets/")]


def test_a_mount_above_the_state_and_another_name_of_the_claim_hide_the_same():
    values = job(state={"subPath": "team"})
    values["job"]["volumes"] = [
        {"claimName": "fileserver-claim", "mountPath": "/whole"}
    ]
    claim = {"claimName": "fileserver-claim"}
    values["pods"] = {
        "worker": {
            "volumes": [{"name": "again", "persistentVolumeClaim": claim}],
            "volumeMounts": [{"name": "again", "mountPath": "/again"}],
        }
    }
    found = {
        mount["mountPath"]: (mount["name"], mount.get("subPath", ""))
        for mount in container(pods(objects(values))["worker"])["volumeMounts"]
    }
    for place in ("/whole/team", "/again/team"):
        assert found[f"{place}/.elasticdl"] == ("elasticdl-hidden", "")
        assert found[f"{place}/{OWN}"][1] == f"team/{OWN}"


@pytest.mark.parametrize(
    ("state", "inside", "place"),
    [
        ("", ".", "/more"),
        ("", "./", "/more"),
        ("a/b", "./a/b", "/more"),
        ("a/b", "a//b/", "/more"),
        ("a/b", "a/.", "/more/b"),
    ],
)
def test_the_same_folder_in_another_spelling_hides_the_same(state, inside, place):
    values = job(state={"subPath": state})
    claim = {"claimName": "fileserver-claim"}
    values["pods"] = {
        "worker": {
            "volumes": [{"name": "again", "persistentVolumeClaim": claim}],
            "volumeMounts": [
                {"name": "again", "mountPath": "/more", "subPath": inside}
            ],
        }
    }
    found = {
        mount["mountPath"]: (mount["name"], mount.get("subPath", ""))
        for mount in container(pods(objects(values))["worker"])["volumeMounts"]
    }
    own = f"{state}/{OWN}".removeprefix("/")
    assert found[f"{place}/.elasticdl"] == ("elasticdl-hidden", "")
    assert found[f"{place}/{OWN}"] == ("again", own)


@pytest.mark.parametrize(
    ("top", "below", "kept"),
    [
        ({}, {"/whole/a": "a", "/whole/a/b": "a/b"}, []),
        ({"subPath": "a"}, {"/whole/b": "a/b"}, []),
        ({"readOnly": True}, {"/whole/a": "a", "/whole/a/b": "a/b"}, [True, True]),
    ],
)
def test_no_folder_around_the_hidden_ones_can_be_moved_away(top, below, kept):
    """Nothing that is mounted on can be; the next pod would see all of them there."""
    values = job(state={"subPath": "a/b"})
    claim = {"claimName": "fileserver-claim"}
    values["pods"] = {
        "worker": {
            "volumes": [{"name": "again", "persistentVolumeClaim": claim}],
            "volumeMounts": [{"name": "again", "mountPath": "/whole", **top}],
        }
    }
    mounts = container(pods(objects(values))["worker"])["volumeMounts"]
    again = [
        one for one in mounts if one["name"] == "again" and one["mountPath"] in below
    ]
    assert {one["mountPath"]: one["subPath"] for one in again} == below
    assert [one["readOnly"] for one in again if "readOnly" in one] == kept
    paths = [one["mountPath"] for one in mounts]
    for around in below:
        assert paths.index(around) < paths.index(f"{max(below)}/.elasticdl")


@pytest.mark.parametrize("role", ["master", "ps", "worker"])
def test_a_folder_of_the_claim_takes_its_place_for_all_roles(role):
    assert seen(role, subPath="team/a")["/data"] == ("elasticdl-state", "team/a")


def test_a_folder_of_the_claim_and_hiding_name_the_folder_below_the_other_one():
    found = seen("worker", subPath="team")
    assert found[f"/data/{OWN}"] == ("elasticdl-state", f"team/{OWN}")


def test_a_folder_in_the_claims_place_may_begin_with_a_dot():
    values = job()
    values["pods"] = {
        "worker": {
            "volumes": [{"name": "mine", "persistentVolumeClaim": {"claimName": "c"}}],
            "volumeMounts": [
                {"name": "mine", "mountPath": "/data", "subPath": "./.team"}
            ],
        }
    }
    mounts = container(pods(objects(values))["worker"])["volumeMounts"]
    (own,) = (one for one in mounts if one["mountPath"] == f"/data/{OWN}")
    assert own["subPath"] == f".team/{OWN}"


def test_a_volume_in_the_claims_place_is_hidden_in_the_same_way():
    values = job()
    values["job"]["volumes"] = [{"claimName": "mine", "mountPath": "/data"}]
    made = pods(objects(values))["worker"]
    (last,) = (
        mount
        for mount in container(made)["volumeMounts"]
        if mount["mountPath"] == f"/data/{OWN}"
    )
    (volume,) = (v for v in made["spec"]["volumes"] if v["name"] == last["name"])
    assert volume["persistentVolumeClaim"] == {"claimName": "mine"}
    assert last["subPath"] == OWN
    assert yaml.safe_dump(made).count("elasticdl-hidden") == 2


@pytest.mark.parametrize("path", ["/data/.elasticdl", "/data/.elasticdl/jobs"])
def test_a_volume_of_their_own_for_the_jobs_folders_stays_in_its_place(path):
    values = job()
    values["job"]["volumes"] = [{"claimName": "journals", "mountPath": path}]
    made = pods(objects(values))["worker"]
    found = [
        mount["mountPath"]
        for mount in container(made)["volumeMounts"]
        if mount["mountPath"].startswith("/data")
    ]
    assert found == [path, "/data"]


@pytest.mark.parametrize("state", [{}, {"subPath": "team/a"}])
def test_the_folder_of_a_job_that_has_not_begun_is_made_as_its_own_master_would(
    tmp_path, state
):
    """The kubelet makes it for root, and that job's master could not begin."""
    values = job(state=state)
    values["job"]["env"] = {"TEACHER": f"/data/{TEACHER}/model"}
    made = of_kind(objects(values), "ConfigMap")["data"]
    templates = {role: made[f"{role}.yaml"] for role in (Role.PS, Role.WORKER)}
    own = JobDir(tmp_path / OWN)
    own.root.mkdir(parents=True)
    make_named(templates, own)
    assert sorted(one.name for one in own.root.parent.iterdir()) == [
        "digits",
        "teacher",
    ]
    assert not list((tmp_path / TEACHER).iterdir())
    make_named(templates, own)  # there it stays as it is
