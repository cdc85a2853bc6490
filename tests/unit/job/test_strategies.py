"""Settings that would have no effect with a strategy or a mode are refused."""

import pytest
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.spec.problems import ProblemsError
from pydantic import ValidationError


def spec(**parts):
    given = {"name": "a", "model": {"definition": "a.b"}, "data": {"training": "d"}}
    return JobSpec.model_validate({**given, **parts})


SYNC, LOCAL = {"ps": {"mode": "sync"}}, {"strategy": "local"}


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        ({"ps": {"mode": "sync", "maxStaleness": 3}}, "ps.maxStaleness"),
        ({"ps": {"mode": "sync", "stalenessModulation": True}}, "stalenessModulation"),
        ({**SYNC, "worker": {"pullSteps": 2}}, "worker.pullSteps"),
        ({**LOCAL, "worker": {"pullSteps": 2}}, "worker.pullSteps"),
        ({**LOCAL, "ps": {"replicas": 2}}, "no parameter servers"),
        ({"export": {"dir": "out", "formats": []}}, "formats"),
    ],
)
def test_what_would_have_no_effect_is_refused(parts, path):
    with pytest.raises((ValidationError, ProblemsError), match=path):
        spec(**parts)


def test_what_has_an_effect_or_is_of_no_training_is_taken():
    stale = {"maxStaleness": 3, "stalenessModulation": True}
    spec(ps=stale, worker={"pullSteps": 4})
    measured = {
        "type": "evaluate",
        "data": {"validation": "d"},
        "checkpoint": {"initFrom": "c"},
    }
    spec(**measured, ps={"mode": "sync", **stale}, worker={"pullSteps": 4})
    spec(**measured, **LOCAL, ps={"replicas": 2})
