"""A TrainingJob for which Helm takes long, or for ever, keeps no other one waiting.

A script on the PATH stands for Helm: for the job `a` it does not end before it may.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elasticdl.client.cluster.api import Where
from elasticdl.client.cluster.chart import find_chart
from elasticdl.client.cluster.helm import HelmLibrary, HelmStuckError, find_helm
from elasticdl.client.cluster.submit import chart_values
from elasticdl.job.values.training_job import read_manifest

from tests.unit.scripted_server import ENDS, Server
from tests.unit.training_jobs.objects import changed, manifest
from tests.unit.training_jobs.test_controller import (
    CORE,
    OWN,
    OneJob,
    controlled,
    made,
    serving,
)

LONG = 600.0  # nothing waits for that
SCRIPT = """#!/bin/sh
[ $1 = show ] && exit
cat > {place}/values.$$
echo $$ >> {place}/$2
until [ $2 = b ] || [ -e {place}/go ]; do sleep 0.02; done
echo 'Error: no chart for '$2 >&2
exit 1
"""


class Stand:
    """The script, what it was called for, and what lets it go on."""

    def __init__(self, place: Path) -> None:
        self.place = place
        program = place / "helm"
        program.write_text(SCRIPT.format(place=place))
        program.chmod(0o755)

    def began(self, name: str) -> list[int]:
        """Return the processes that were started for a job."""
        file = self.place / name
        return [int(one) for one in file.read_text().split()] if file.exists() else []

    def living(self, name: str) -> list[int]:
        """Return those of them that have not ended."""
        return [pid for pid in self.began(name) if Path(f"/proc/{pid}").exists()]

    def go_on(self) -> None:
        (self.place / "go").touch()

    def said_to(self, pid: int) -> str:
        """Return the values that one was given."""
        return (self.place / f"values.{pid}").read_text()


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    made = Stand(tmp_path)
    yield made
    made.go_on()


def answering(server: Server) -> Server:
    server.scripts |= {f"PATCH {OWN}/{name}/status": [made(name)] for name in "ab"}
    return server


def test_a_trainingjob_at_which_helm_hangs_keeps_no_other_one_waiting(
    stand: Stand,
) -> None:
    server = answering(serving(manifest("a"), manifest("b")))
    told = f"PATCH {OWN}/b/status"
    helm = find_helm(str(stand.place), limit_seconds=LONG)

    def holds() -> bool:
        if server.asked[told] and stand.began("a"):
            stand.go_on()
            return True
        return False

    controlled(server, holds, helm)
    [accepted] = [
        one
        for one in server.sent[told][0]["status"]["conditions"]
        if one["type"] == "Accepted"
    ]
    assert "no chart for b" in accepted["message"]


def test_a_helm_that_does_not_answer_is_ended_and_the_condition_says_so(
    stand: Stand,
) -> None:
    server = answering(serving(manifest("a")))
    told = f"PATCH {OWN}/a/status"
    helm = find_helm(str(stand.place), limit_seconds=0.5)
    controlled(server, lambda: server.asked[told] > 0, helm)
    [accepted] = [
        one
        for one in server.sent[told][0]["status"]["conditions"]
        if one["type"] == "Accepted"
    ]
    assert (accepted["status"], accepted["reason"]) == ("False", "NotRendered")
    assert "no answer from `helm template` in 0.5 s" in accepted["message"]
    assert stand.began("a")
    assert len(stand.living("a")) <= len(stand.began("a")) - 1


def test_one_trainingjob_is_worked_on_once_at_a_time_and_then_as_it_is_now(
    stand: Stand,
) -> None:
    edited = changed(manifest("a"), job__worker__replicas=7)
    edited["metadata"] |= {"resourceVersion": "9", "generation": 2}
    server = answering(serving(manifest("a")))
    news = [{"type": "MODIFIED", "object": edited}]
    helm = find_helm(str(stand.place), limit_seconds=LONG)
    server.scripts[f"{OWN}?watch"] = [(200, [*news, ENDS])]
    again: list[int] = []

    def holds() -> bool:
        # The edit is known, and its watch is begun anew, while the first one hangs.
        if not again and stand.began("a") and server.asked[f"{OWN}?watch"] >= 2:
            again.extend(stand.living("a"))
            stand.go_on()
        return bool(again) and any(
            '"replicas": 7' in stand.said_to(pid) for pid in stand.began("a")
        )

    controlled(server, holds, helm)
    assert len(again) == 1


def test_what_was_edited_while_helm_rendered_is_not_made_as_it_was_before(
    stand: Stand,
) -> None:
    edited = manifest("a", job__worker__replicas=-1)
    edited["metadata"] |= {"resourceVersion": "9", "generation": 2}
    first = manifest("a")
    first["metadata"]["resourceVersion"] = "4"
    server = answering(serving(first))
    server.scripts[f"{OWN}?watch"] = [
        (200, [{"type": "MODIFIED", "object": edited}, ENDS])
    ]
    made_it, told = f"PATCH {CORE}/elasticdl-a", f"PATCH {OWN}/a/status"
    server.scripts[made_it] = [made("elasticdl-a")]

    known = threading.Event()

    class Slow(OneJob):
        def render(self, *about: Any) -> str:
            known.wait(LONG)
            return super().render(*about)

    def holds() -> bool:
        if server.asked[f"{OWN}?watch"] >= 2:
            known.set()
        return server.asked[told] > 0

    controlled(server, holds, Slow("helm"))
    assert server.asked[made_it] == 0


def test_the_library_is_ended_too_where_it_takes_long(tmp_path: Path) -> None:
    helm = find_helm(str(tmp_path), limit_seconds=0.01)
    with pytest.raises(HelmStuckError, match=r"in 0\.01 s"):
        helm.render(find_chart(), "digits", Where("", "ml"), {})


def test_values_that_take_the_memory_of_the_controller_end_no_controller() -> None:
    """Each folder of the path is a mount of its own, with the whole path to it."""
    claim = {"claimName": "c"}
    mounted = {
        "volumes": [{"name": "v", "persistentVolumeClaim": claim}],
        "volumeMounts": [{"name": "v", "mountPath": "/all"}],
    }
    helm = HelmLibrary(limit_seconds=LONG)

    def rendered(folder: str) -> str:
        job = manifest(state={**claim, "subPath": folder}, pods={"worker": mounted})
        values, _ = read_manifest(job)
        assert values is not None
        tree = chart_values(values)
        tree["jobs"] = {"defaults": {"images": {"registry": "r.example"}}, "fixed": []}
        return helm.render(find_chart(), "digits", Where("", "ml"), tree)

    assert "kind: Job" in rendered("a/a")
    with pytest.raises(HelmStuckError, match="more memory"):
        rendered("a/" * 8000 + "a")
