"""A history that has grown long: what is kept of it, and what a ConfigMap is given."""

import gzip
import os
import tracemalloc
from pathlib import Path

from elasticdl.job import history
from elasticdl.job.decision import Decision
from elasticdl.job.history import HistorySample, PsSample
from elasticdl.master.telling.shortening import (
    MOST_FILE_BYTES,
    MOST_PACKED_BYTES,
    packed,
    shorten,
)


def sample(number: int, **more: object) -> HistorySample:
    fields = {
        "state": "running",
        "workers_wanted": 1,
        "workers_min": 0,
        "workers_max": 0,
        "workers_running": 1,
        "workers_pending": 0,
    }
    return HistorySample(time=float(number), **fields, **more)


def test_what_is_shown_in_a_cluster_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    lines = [history.line(sample(number)) for number in range(3000)]
    lines += [
        history.line(Decision(time=float(n), kind="attention", text=f"{n}"))
        for n in range(1500)
    ]
    path.write_text("\n".join(lines))
    shown = history.parse(gzip.decompress(packed(path)).decode().splitlines())
    assert len(shown.samples) == 1000
    assert (shown.samples[0].time, shown.samples[-1].time) == (0.0, 2999.0)
    assert [one.time for one in shown.decisions] == [float(n) for n in range(500, 1500)]


def test_a_long_history_is_shown_without_being_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    text = "x" * 200
    with path.open("w", encoding="utf-8") as file:
        for number in range(40_000):
            decision = Decision(time=float(number), kind="ended", text=text)
            file.write(history.line(decision) + "\n")
    tracemalloc.start()
    packed(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < path.stat().st_size / 5


def test_samples_of_many_workers_still_fit_into_a_config_map(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    ps = {
        str(n): PsSample(state="running", received_bytes=hash((n, 7)) % 2**40)
        for n in range(200)
    }
    lines = [
        history.line(
            sample(
                number,
                ps={k: v.model_copy(update={"sent_bytes": hash((k, number)) % 2**40})
                    for k, v in ps.items()},
            )
        )
        for number in range(600)
    ]  # fmt: skip
    path.write_text("\n".join(lines))
    document = packed(path)
    assert len(document) <= MOST_PACKED_BYTES
    shown = history.parse(gzip.decompress(document).decode().splitlines())
    assert shown.samples[-1].time == 599.0


def test_words_of_a_platform_that_do_not_pack_still_fit_into_a_config_map(
    tmp_path: Path,
) -> None:
    path = tmp_path / "history.jsonl"
    lines = [history.line(sample(number)) for number in range(600)]
    lines += [
        history.line(
            Decision(time=float(n), kind="ended", detail=os.urandom(2000).hex())
        )
        for n in range(1000)
    ]
    path.write_text("\n".join(lines))
    document = packed(path)
    assert len(document) <= MOST_PACKED_BYTES
    shown = history.parse(gzip.decompress(document).decode().splitlines())
    assert shown.decisions[-1].time == 999.0
    assert (shown.samples[0].time, shown.samples[-1].time) == (0.0, 599.0)


def test_one_word_too_long_for_a_config_map_leaves_the_samples(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    long = Decision(time=1.0, kind="ended", detail=os.urandom(1 << 20).hex())
    path.write_text("\n".join([history.line(sample(1)), history.line(long)]))
    document = packed(path)
    assert len(document) <= MOST_PACKED_BYTES
    assert len(history.parse(gzip.decompress(document).decode().splitlines()).samples)


def test_a_file_is_bounded_over_a_hundred_thousand_relaunches(tmp_path: Path) -> None:
    path, longest, times = tmp_path / "history.jsonl", 0, 0
    text, cause = "worker-5 ended: exit code 137; replaced by worker-6", "exit code 137"
    for start in range(0, 100_000, 1000):
        lines = [history.line(sample(start))]
        for number in range(start, start + 1000):
            ended = Decision(
                time=float(number), kind="ended", replica=f"worker-{number}",
                cause=cause, end="deleted", text=text, detail="x" * 600,
            )  # fmt: skip
            lines.append(history.line(ended))
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
        longest = max(longest, path.stat().st_size)
        times += shorten(path)
    assert times >= 2
    assert longest < MOST_FILE_BYTES + (1 << 20)
    kept = history.read(path)
    # All of the job's life in samples, the newest relaunches without a gap.
    assert [one.time for one in kept.samples] == [1000.0 * n for n in range(100)]
    numbers = [int(one.time) for one in kept.decisions]
    assert numbers == list(range(numbers[0], 100_000))
    assert len(numbers) > 5000


def test_samples_too_are_fewer_where_they_fill_the_file(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    lines = [history.line(sample(number)) for number in range(5000)]
    path.write_text("\n".join(lines))
    assert shorten(path, most_bytes=100_000)
    assert path.stat().st_size < 30_000
    kept = history.read(path).samples
    assert (kept[0].time, kept[-1].time) == (0.0, 4999.0)
    assert len(kept) > 100
    assert not shorten(path, most_bytes=100_000)
