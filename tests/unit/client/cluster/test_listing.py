"""Objects of many jobs and namespaces, sorted out."""

from elasticdl.client import Condition
from elasticdl.client.cluster.listing import group
from elasticdl.client.cluster.objects import view_of


def thing(namespace, job, name, **parts):
    metadata = {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}"}
    return {"metadata": {**metadata, "labels": {"elasticdl-job-name": job}}, **parts}


def job_map(namespace, job):
    return thing(namespace, job, f"elasticdl-{job}", data={"job.yaml": ""})


def test_objects_of_one_name_in_two_namespaces_are_not_mixed():
    maps = [
        job_map("b", "digits"),
        job_map("a", "digits"),
        thing("b", "digits", "elasticdl-digits-status", data={"status.json": ""}),
    ]
    jobs = [thing("a", "digits", "elasticdl-digits-master")]
    pods = [thing("a", "digits", "p1"), thing("b", "digits", "p2")]
    (first, of_a), (second, of_b) = group(maps, jobs, pods, [])
    assert (first, second) == (("a", "digits"), ("b", "digits"))
    assert (of_a.pods, of_a.status_map) == ([pods[0]], None)
    assert (of_b.pods, of_b.status_map) == ([pods[1]], maps[2])
    assert (of_a.master_job, of_b.master_job) == (jobs[0], None)


def test_events_reach_the_jobs_of_their_namespace():
    event = {
        "type": "Warning",
        "message": "exceeded quota",
        "metadata": {"namespace": "a"},
        "involvedObject": {"name": "elasticdl-digits-master"},
    }
    jobs = [thing(name, "digits", "elasticdl-digits-master") for name in "ab"]
    maps = [job_map(name, "digits") for name in "ab"]
    of_a, of_b = (view_of("digits", one) for _, one in group(maps, jobs, [], [event]))
    assert "exceeded quota" in of_a.note
    assert (of_b.condition, of_b.note) == (
        Condition.PENDING,
        "its pod is not there yet",
    )
