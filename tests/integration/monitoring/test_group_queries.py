"""Every query of the group's dashboard, asked of a Prometheus that saw a group."""

import signal
import time

import pytest
from elasticdl.testing.job import JobUnderTest

from tests.integration.monitoring.conftest import wait_for_scrape
from tests.prometheus.boards import (
    GROUP_PANELS,
    Seen,
    assert_answered,
    assert_no_line_twice,
    drawn,
    queries,
)
from tests.prometheus.server import Prometheus

# One job goes through all that is asked about; it takes a minute and a half alone.
pytestmark = pytest.mark.timeout(400)

NAME = "watched-group"


def name_of(part):
    if isinstance(part, dict):
        return part.get("title") or part.get("refId")
    return part


def goes_through_rounds(job, prometheus):
    """Let a group begin, lose a member and take another one in."""
    whole = job.wait_until(
        lambda s: s.group and s.group.level and len(s.group.members) == 2,
        "two members",
    )
    job.wait_for_step(whole.progress.version + 50)
    lost = whole.group.members[0]
    job.handle.kill(lost, signal.SIGKILL)
    status = job.wait_until(
        lambda s: (
            len(s.group.members) == 2
            and lost not in s.group.members
            and s.group.change_seconds is not None
        ),
        "another member",
    )
    job.wait_for_step(status.progress.version + 200)
    prometheus.wait_until(
        lambda: prometheus.series(
            "rate(elasticdl_worker_gradient_sent_bytes_total[10s]) > 0"
        ),
        "some scrapes of members at work",
    )
    wait_for_scrape(prometheus)


@pytest.fixture(scope="module")
def group(digits, digits_values, tmp_path_factory):
    folder = tmp_path_factory.mktemp("group")
    values = digits_values(
        NAME,
        strategy="allReduce",
        training={"epochs": 10_000, "batchesPerTask": 4},
    )
    targets = [folder / "jobs" / NAME / "targets.json"]
    with Prometheus(folder / "prometheus", targets) as prometheus:
        started = time.time()
        with JobUnderTest(values, folder / "jobs", digits) as job:
            goes_through_rounds(job, prometheus)
            shown = job.status_now()
            ended = time.time()
            job.handle.stop()
            job.finish(expected=130)
        yield Seen(prometheus, "local", NAME, started, ended), shown


@pytest.mark.parametrize(("uid", "panel", "target"), queries(GROUP_PANELS), ids=name_of)
def test_each_query_about_a_group_has_an_answer_of_the_right_shape(
    group, uid, panel, target
):
    assert_answered(group[0], uid, panel, target)


@pytest.mark.parametrize(("uid", "panel"), drawn(GROUP_PANELS), ids=name_of)
def test_no_panel_about_a_group_draws_two_lines_of_one_name(group, uid, panel):
    assert_no_line_twice(group[0], panel)


def test_what_is_scraped_is_what_the_status_says(group):
    seen, shown = group
    assert seen.value("sum(elasticdl_group_round)") == shown.group.round
    assert seen.value("sum(elasticdl_group_change_seconds)") == pytest.approx(
        shown.group.change_seconds
    )
    assert seen.value("count(elasticdl_group_member_rank)") == 2
    regroup = seen.value('sum(elasticdl_goodput_seconds_total{cause="regroup"})')
    assert regroup > 0
