"""What a release states, of what it knows."""

import gzip
import io
import tarfile

import pytest

from release import facts
from release.chart import at_one_time


def archive(names, mtime):
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=mtime) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as new,
    ):
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(name), mtime
            new.addfile(entry, io.BytesIO(name.encode()))
    return packed.getvalue()


def test_an_archive_has_the_same_bytes_whenever_it_was_made():
    one = at_one_time(archive(["b", "a"], 1), 7)
    assert one == at_one_time(archive(["a", "b"], 2), 7)
    with tarfile.open(fileobj=io.BytesIO(one)) as opened:
        assert [(each.name, each.mtime) for each in opened] == [("a", 7), ("b", 7)]
        assert opened.extractfile("b").read() == b"b"


@pytest.mark.parametrize(
    ("version", "number"),
    [("1.0.0.dev0", "1.0.0-dev.0"), ("1.2.0", "1.2.0"), ("1.2.0rc1", "1.2.0-rc.1")],
)
def test_a_version_of_python_is_one_of_the_chart(version, number):
    assert facts.chart_version(version) == number


def test_a_version_of_another_form_is_refused():
    with pytest.raises(facts.ReleaseError, match="expected one as"):
        facts.chart_version("1.0+local")


@pytest.mark.parametrize(
    ("registry", "plain"),
    [
        ("localhost:5000/team", True),
        ("127.0.0.1:5000", True),
        ("[::1]:5000/team", True),
        ("[2001:db8::1]:5000", False),
        ("localhost.example/team", False),
        ("registry.example/localhost", False),
    ],
)
def test_this_machine_alone_is_reached_without_tls(registry, plain):
    assert facts.is_loopback(registry) is plain


@pytest.mark.parametrize("registry", ["[::1]:5000/team", "[2001:db8::1]:5000"])
def test_a_registry_may_be_an_address_of_ipv6(registry):
    assert facts.check_registry(f"{registry}/") == registry
    with pytest.raises(facts.ReleaseError, match="expected a host with folders"):
        facts.check_registry(registry.replace("]", ""))


def test_an_sbom_lists_of_a_lock_what_the_image_has():
    image = facts.Image(
        role="ps",
        name="r.example/elasticdl/ps",
        digest="sha256:" + 64 * "0",
        machine="x86_64",
        python={"Ruamel.YAML": "1"},
        debian=(),
        lock="lock.txt",
    )
    lock = (
        "# made\ncolor==2 \\\n    --hash=sha256:aa\n"
        "ruamel-yaml==1 \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\n"
    )
    assert facts.requirements(image, lock) == (
        "ruamel-yaml==1 \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\n"
    )
    facts.check_locked(image, {"ruamel-yaml": "1"})
    with pytest.raises(
        facts.ReleaseError, match=r"got Ruamel\.YAML 1, which lock\.txt"
    ):
        facts.check_locked(image, {"ruamel-yaml": "2"})
