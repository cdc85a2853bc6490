"""What `scale` says: what changed from what to what, and what happens next."""

import pytest
from elasticdl.cli.scale import told
from elasticdl.client import Scaled
from elasticdl.job.spec.job import JobSpec


def spec(*, replicas=3, least=0, most=0, strategy="parameterServer", paused=False):
    return JobSpec.model_validate(
        {
            "name": "digits",
            "model": {"definition": "digits.cnn.custom_model"},
            "data": {"training": "d"},
            "strategy": strategy,
            "paused": paused,
            "worker": {
                "replicas": replicas,
                "min": least,
                "max": most,
                "pauseSeconds": 2.5,
            },
        }
    )


LOCAL = {"replicas": 1, "strategy": "local"}
GROUP = {"replicas": 3, "strategy": "allReduce"}


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (
            {},
            {"replicas": 5, "most": 6},
            "workers 3 -> 5, max none -> 6; 2 more to come, nobody who runs is "
            "restarted\nwhere the cluster has a controller, that decides between 1 and "
            "6 workers, and this number is for the time without it; --fixed makes "
            "it the only one",
        ),
        (
            {},
            {"replicas": 2},
            "workers 3 -> 2; 1 to leave, tasks are handed back; nobody else is "
            "restarted",
        ),
        ({"least": 2}, {}, "min 2 -> none; nobody is restarted"),
        (
            {},
            {"paused": True},
            "paused no -> yes; no task is given out; workers leave after 2.5 s with "
            "nothing to do",
        ),
        (
            LOCAL,
            {**LOCAL, "paused": True},
            "paused no -> yes; no task is given out; the worker stays, it holds the "
            "model",
        ),
        (
            GROUP,
            {**GROUP, "paused": True},
            "paused no -> yes; no task is given out; the workers stay, they hold the "
            "model",
        ),
        (
            {"paused": True},
            {"replicas": 1},
            "workers 3 -> 1, paused yes -> no; it goes on where it was, with 1 worker",
        ),
        (
            {"paused": True},
            {"paused": True, "replicas": 4},
            "workers 3 -> 4; it goes on with 4 workers at --resume",
        ),
        (
            {"paused": True},
            {"paused": True},
            "nothing to change, it has 3 workers, paused",
        ),
    ],
)
def test_one_line_says_what_changed_and_what_comes_of_it(before, after, line):
    assert told(Scaled(spec(**before), spec(**after))) == line


def test_under_argo_cd_the_way_that_lasts_is_told():
    kept = Scaled(spec(), spec(replicas=5), by_argo_cd=True)
    assert "in the job's values file in the repository" in told(kept)
