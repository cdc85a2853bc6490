"""What the controller's metrics say of its plans."""

from elasticdl.controller.showing import PlanAge, hide, show
from elasticdl.metrics.registry import ControllerMetrics
from prometheus_client import generate_latest

from tests.unit.planner.build import cluster, job, made, node, workers


def test_the_age_of_a_plan_is_that_of_leading_until_there_is_one() -> None:
    age = PlanAge()
    assert age.seconds(100.0, leads=False) is None
    assert age.seconds(110.0, leads=True) == 0.0
    assert age.seconds(130.0, leads=True) == 20.0
    age.planned(135.0)
    assert age.seconds(140.0, leads=True) == 5.0
    assert age.seconds(150.0, leads=False) is None
    assert age.seconds(160.0, leads=True) == 0.0


def test_who_lost_the_lease_shows_no_sizes_that_another_one_decides() -> None:
    one = job("a", 1, 3, 2)
    metrics = ControllerMetrics()
    show(metrics, made(cluster(node("n", 4), one, workers(one, n=2))), 0)
    granted = 'elasticdl_controller_workers_granted{training_job="a"'
    assert granted in generate_latest(metrics.registry).decode()
    hide(metrics)
    text = generate_latest(metrics.registry).decode()
    assert granted not in text
    assert "elasticdl_controller_held{" not in text
