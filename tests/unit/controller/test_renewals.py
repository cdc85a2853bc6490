"""What of a job's ConfigMap is news to a controller that renews its own grants."""

from elasticdl.controller.jobs import only_renewed
from elasticdl.job.grant import Grant, format_grant

WORKERS = "elasticdl.org/workers"


def item(grant: Grant | None, data: str = "kind: job", uid: str = "u", **notes: str):
    annotations = dict(notes)
    if grant:
        annotations[WORKERS] = format_grant(grant)
    metadata = {"uid": uid, "annotations": annotations}
    return {"metadata": metadata, "data": {"job.yaml": data}}


GRANT = Grant(3, (1,), 1000.0, "ml/me", "room was free")
RENEWED = Grant(3, (1,), 2000.0, "ml/me", "its share is fair")


def test_a_grant_that_was_renewed_is_no_news() -> None:
    assert only_renewed(item(GRANT, note="a"), item(RENEWED, note="a"))


def test_all_else_is_news() -> None:
    before = item(GRANT, note="a")
    for after in (
        item(Grant(4, (1,), 2000.0, "ml/me"), note="a"),
        item(Grant(3, (), 2000.0, "ml/me"), note="a"),
        item(Grant(3, (1,), 2000.0, "ml/other"), note="a"),
        item(None, note="a"),
        item(RENEWED, note="b"),
        item(RENEWED),
        item(RENEWED, note="a", stop="now"),
        item(RENEWED, data="kind: job\npaused: true", note="a"),
        item(RENEWED, uid="v", note="a"),
    ):
        assert not only_renewed(before, after)
    assert not only_renewed(item(None), item(None))
