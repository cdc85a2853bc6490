"""All benchmarks by name, in the order of the table.

Each file of this folder brings its own in BENCHMARKS.
"""

from __future__ import annotations

from frame import Benchmark


def benchmarks() -> dict[str, Benchmark]:
    """Return what can be run."""
    import cluster
    import controller
    import data_path
    import group
    import group_jobs
    import group_network
    import group_step
    import group_tf
    import jobs
    import master
    import planner
    import ps
    import recovery
    import scraping
    import simulator
    import sql
    import step
    import tls

    found: dict[str, Benchmark] = {}
    for module in (
        data_path,
        ps,
        group,
        group_step,
        tls,
        step,
        jobs,
        master,
        recovery,
        group_jobs,
        group_network,
        group_tf,
        scraping,
        sql,
        cluster,
        controller,
        planner,
        simulator,
    ):
        found.update(module.BENCHMARKS)
    return found
