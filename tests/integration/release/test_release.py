"""A release to a real registry, of a repository with one commit; its images are small.

What images/build does with a builder is in docs/releasing.md; here it has noted four
images that were pushed, as it does elsewhere for RECORD=.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import helm_python
import pytest
import yaml
from elasticdl import __version__

from release import chart, facts
from tests.registry import Registry

ROOT = Path(__file__).parents[3]
BASE = "python@sha256:" + 64 * "b"
DEBIAN = [["libstdc++6", "12.2.0-14+deb12u1", "amd64"]]
ROLES = ("master", "ps", "worker", "training-jobs")
# The first run installs the programs of a release.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    with Registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def programs():
    """The folder with cyclonedx-py, made as `make release` makes it."""
    program = Path(sys.prefix) / "release" / "bin" / "cyclonedx-py"
    subprocess.run(["make", f"VENV={sys.prefix}", program], cwd=ROOT, check=True)
    return program.parent


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    file = tmp_path_factory.mktemp("key") / "release_key"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", file]
    subprocess.run(words, check=True)
    return file


class Repository:
    """A clone as a releaser has it."""

    def __init__(self, folder, registry, key, programs):
        self.folder, self.registry = folder, registry
        self.key, self.programs = key, programs
        self.images = {}
        self.record = folder.parent / "record"
        for place in ("release", "charts", "images"):
            shutil.copytree(
                ROOT / place,
                folder / place,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        (folder / ".gitignore").write_text("__pycache__/\n/dist/\n")
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "One")

    def git(self, *words):
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        done = subprocess.run(
            ["git", *who, *words],
            cwd=self.folder,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def push_images(self, content, team):
        """Push four small images, and note them as images/build does."""
        self.team = team
        self.record.mkdir(exist_ok=True)
        (self.record / "revision").write_text(self.git("rev-parse", "HEAD"))
        (self.record / "base").write_text(BASE)
        (self.record / "worker_extra").write_text("worker-cpu")
        installed = {
            "machine": "x86_64",
            "python": [["elasticdl", __version__], ["numpy", self.numpy()]],
            "debian": DEBIAN,
        }
        for role in ROLES:
            digest = self.push_image(role, content)
            (self.record / f"{role}.digest").write_text(f"{digest}\n")
            noted = self.record / f"{role}.installed.json"
            noted.write_text(json.dumps(installed))
            self.images[role] = digest

    def push_image(self, role, content):
        return self.registry.push_image(
            f"{self.team}/elasticdl/{role}", __version__, f"{role} {content}"
        )

    def numpy(self):
        lock = (self.folder / "images/ps/lock.txt").read_text()
        (line,) = (each for each in lock.splitlines() if each.startswith("numpy=="))
        return line.split("==")[1].split()[0]

    def release(self, **changed):
        """Run it; return (exit code, what it said)."""
        options = {
            "registry": f"{self.registry.host}/{self.team}",
            "key": self.key,
            "identity": "releases@example.org",
            "record": self.record,
            "tools": self.programs,
            **changed,
        }
        words = [f"--{name.replace('_', '-')}={each}" for name, each in options.items()]
        done = subprocess.run(
            [sys.executable, "-m", "release.main", *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory, registry, key, programs):
    """A repository, and what its release has said; nobody changes them."""
    repository = Repository(
        tmp_path_factory.mktemp("made") / "clone", registry, key, programs
    )
    repository.push_images("made", "team")
    status, said = repository.release()
    assert status == 0, said
    return repository, said


@pytest.fixture
def published(made, tmp_path):
    """A folder as others get it, and what the release has said."""
    repository, said = made
    folder = tmp_path / "published"
    shutil.copytree(repository.folder / "dist" / __version__, folder)
    return folder, said


@pytest.fixture
def pushed(tmp_path, registry, key, programs):
    repository = Repository(tmp_path / "clone", registry, key, programs)
    repository.push_images(tmp_path.name, "other")
    return repository


def verify(folder, said):
    """Run the lines that a release has printed; return the exit code."""
    _, lines = said.split("allowed_signers from where they trust it:\n")
    lines = lines.split("\n\n")[0]
    words = ["bash", "-c", lines]
    return subprocess.run(
        words, cwd=folder, capture_output=True, check=False
    ).returncode


def test_a_release_is_in_the_registry_and_others_can_check_it(made, published):
    pushed, _ = made
    folder, said = published
    assert verify(folder, said) == 0

    sums = (folder / "SHA256SUMS").read_text()
    named = {line.split("  ")[1] for line in sums.splitlines()}
    others = {"SHA256SUMS", "SHA256SUMS.sig", "allowed_signers"}
    assert named == {file.name for file in folder.iterdir()} - others

    stated = json.loads((folder / "provenance.json").read_text())
    subjects = {each["name"]: each["digest"]["sha256"] for each in stated["subject"]}
    team = f"{pushed.registry.host}/team"
    for role in ROLES:
        digest = pushed.registry.digest(f"team/elasticdl/{role}", __version__)
        assert subjects[f"{team}/elasticdl/{role}"] == digest.removeprefix("sha256:")
    built_of = stated["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert built_of[0]["digest"]["gitCommit"] == pushed.git("rev-parse", "HEAD")
    assert built_of[1]["digest"]["sha256"] == 64 * "b"
    locks = [each["name"] for each in built_of[2:]]
    assert locks == [
        "images/master/lock.txt",
        "images/ps/lock.txt",
        "images/worker/worker-cpu.lock.txt",
        "images/training-jobs/lock.txt",
    ]


@pytest.mark.parametrize("name", ["provenance.json", "ps.cdx.json", "install.txt"])
def test_a_changed_file_is_found(published, name):
    folder, said = published
    with (folder / name).open("a") as file:
        file.write("\n")
    assert verify(folder, said) != 0


def test_sums_that_somebody_else_has_signed_are_found(published, tmp_path):
    folder, said = published
    (folder / "SHA256SUMS.sig").unlink()
    stranger = tmp_path / "stranger"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger]
    subprocess.run(words, check=True)
    words = ["ssh-keygen", "-Y", "sign", "-q", "-f", stranger]
    words += ["-n", "elasticdl-release", "SHA256SUMS"]
    subprocess.run(words, cwd=folder, check=True)
    assert verify(folder, said) != 0


def test_what_is_installed_is_named_by_digests(made, tmp_path):
    pushed, said = made
    line = said.split("# and install it:\n")[1].replace("\\\n", "")
    words = line.split()
    chart, digest = words[3].removeprefix("oci://").split("@")
    assert pushed.registry.digest(chart.split("/", 1)[1], "1.0.0-dev.0") == digest
    sets = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    values = {}
    for each in sets:
        path, value = each.split("=")
        *parents, last = path.split(".")
        tree = values
        for parent in parents:
            tree = tree.setdefault(parent, {})
        tree[last] = value
    helm_python.pull(
        f"oci://{chart}", version="1.0.0-dev.0", destination=tmp_path, plain_http=True
    )
    (archive,) = tmp_path.glob("elasticdl-*.tgz")
    rendered = helm_python.Chart.load_archive(archive.read_bytes()).render(
        values, name="elasticdl", namespace="ml"
    )
    (text,) = (each for each in rendered.values() if "name: elasticdl.defaults" in each)
    defaults = yaml.safe_load(yaml.safe_load(text)["data"]["jobs.yaml"])["defaults"]
    roles = {r: digest for r, digest in pushed.images.items() if r != "training-jobs"}
    assert defaults["images"]["digests"] == roles
    controller = values["controller"]["trainingJobs"]["image"]
    assert controller.endswith(f"@{pushed.images['training-jobs']}")


def test_an_sbom_has_hashes_of_python_and_the_packages_of_debian(made, published):
    repository, _ = made
    sbom = json.loads((published[0] / "ps.cdx.json").read_text())
    assert sbom["metadata"]["component"]["version"] == repository.images["ps"]
    parts = {part["name"]: part for part in sbom["components"]}
    assert set(parts) == {"elasticdl", "numpy", "libstdc++6"}
    assert parts["numpy"]["version"] == repository.numpy()
    assert "SHA-256" in json.dumps(parts["numpy"])
    assert parts["libstdc++6"]["purl"].startswith("pkg:deb/debian/libstdc%2B%2B6@12")


def test_one_commit_makes_the_same_bytes_but_for_times(made, published):
    repository, _ = made
    first, second = published[0], repository.folder / "dist" / "again"
    status, said = repository.release(out=second)
    assert status == 0, said
    differ = {
        file.name
        for file in first.iterdir()
        if file.read_bytes() != (second / file.name).read_bytes()
    }
    # The chart's digest in the registry is in install.txt.
    assert differ <= {"provenance.json", "SHA256SUMS", "SHA256SUMS.sig"}
    stated = [
        json.loads((each / "provenance.json").read_text()) for each in (first, second)
    ]
    for each in stated:
        del each["predicate"]["runDetails"]["metadata"]
    assert stated[0] == stated[1]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"key": "/nowhere/key"}, "key: no file /nowhere/key; KEY= names an SSH key"),
        ({"key": ""}, "KEY= names an SSH key to sign with"),
        ({"identity": "a b"}, "identity: got 'a b', expected whose key it is"),
        ({"registry": ""}, "registry: got '', expected a host with folders"),
        ({"registry": "https://r.example"}, "expected a host with folders"),
        ({"registry": "127.0.0.1:1/team"}, "registry 127.0.0.1:1/team: got no answer"),
        ({"record": "", "base_image": "python:3.11"}, "expected NAME@sha256:DIGEST"),
        ({"record": "/nowhere"}, "record: no revision in /nowhere; push all images"),
    ],
)
def test_it_refuses(pushed, changed, sentence):
    status, said = pushed.release(**changed)
    assert status == 1
    assert said.startswith("error: ") or "\nerror: " in said
    assert sentence in said
    assert not (pushed.folder / "dist").exists()


def test_it_refuses_files_that_no_commit_has(pushed):
    (pushed.folder / "charts" / "new.txt").write_text("x")
    status, said = pushed.release()
    assert status == 1
    assert "commit: 1 files differ from it, as charts/new.txt" in said


def test_it_refuses_images_of_another_commit(pushed):
    pushed.git("commit", "--quiet", "--allow-empty", "--message", "Two")
    status, said = pushed.release()
    assert status == 1
    assert "check that one out, or build them anew" in said


def test_it_refuses_an_image_that_somebody_replaced(pushed):
    pushed.push_image("ps", "another")
    status, said = pushed.release()
    assert status == 1
    assert "image ps: sha256:" in said
    assert "somebody pushed another one" in said


def test_it_refuses_an_image_with_a_package_that_is_not_locked(pushed):
    noted = pushed.record / "ps.installed.json"
    installed = json.loads(noted.read_text())
    installed["python"].append(["surprise", "1.0"])
    noted.write_text(json.dumps(installed))
    status, said = pushed.release()
    assert status == 1
    assert "image ps: got surprise 1.0, which images/ps/lock.txt does not have" in said


@pytest.mark.parametrize("number", ["2.0.0", "2.0.0-dev.1"])
def test_a_chart_that_others_have_is_replaced_by_none_of_its_version(
    number, registry, tmp_path
):
    where = f"{registry.host}/replaced"
    made = tmp_path / "elasticdl"
    (made / "templates").mkdir(parents=True)
    about = f"apiVersion: v2\nname: elasticdl\nversion: {number}\n"
    (made / "Chart.yaml").write_text(about)
    chart.check_new(made, 1, where, number)
    chart.push(chart.pack(made, tmp_path, 1), where)
    chart.check_new(made, 1, where, number)
    (made / "values.yaml").write_text("another: 1\n")
    if "dev" in number:
        chart.check_new(made, 1, where, number)
        return
    with pytest.raises(facts.ReleaseError, match="is there with other content"):
        chart.check_new(made, 1, where, number)
