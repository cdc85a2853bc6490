"""`worker.threads`: how much of a machine a worker takes."""

from pathlib import Path


def compute_threads(pid):
    """The names of the threads in which TensorFlow computes."""
    names = [
        (task / "comm").read_text().strip()
        for task in Path(f"/proc/{pid}/task").iterdir()
    ]
    return [name for name in names if name == "tf_Compute"]


def test_a_worker_with_one_thread_computes_in_one(job):
    # The backward pass took a second one, so that a second worker on two cores
    # brought 1.3 times the speed of one; 1.7 times since.
    one = job("threads", worker={"replicas": 1, "threads": 1})
    one.wait_for_step(5)
    worker = one.victim("worker")
    assert len(compute_threads(worker.pid)) == 1
