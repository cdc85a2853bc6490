"""Models of rounds that lie aside: moved, cleared, and never taken for others'."""

import fcntl
import os
import time

import pytest
from elasticdl.errors import CheckpointError
from elasticdl.model.export import _work_folder
from elasticdl.worker.uses.models_aside import Aside, RoundOf, clear_left_aside

BOTH = ["savedModel", "keras"]


def of(number, *, job="digits", life=100):
    return RoundOf(job, life, number)


def aside(folder, number, *, names=("saved_model", "model.keras"), **of_whom):
    """A model of a round: its files say which."""
    made = Aside(folder, "best", of(number, **of_whom))
    for name in names:
        made.path.mkdir(parents=True, exist_ok=True)
        file = made.path / name
        if name == "saved_model":
            file.mkdir()
            file = file / "saved_model.pb"
        file.write_text(str(number))
    return made


def read(place):
    return (place / "saved_model" / "saved_model.pb").read_text(), (
        place / "model.keras"
    ).read_text()


def test_the_model_of_a_round_is_moved_to_its_place_however_often_that_is_tried(
    tmp_path,
):
    best = tmp_path / "best"
    aside(tmp_path, 7).move_to(best, BOTH)
    nine = aside(tmp_path, 9)
    assert read(best) == ("7", "7")
    for _ in range(2):
        assert nine.move_to(best, BOTH) == [best / "saved_model", best / "model.keras"]
        assert read(best) == ("9", "9")
    # One that is late moves nothing over it.
    Aside(tmp_path, "best", of(7)).move_to(best, BOTH)
    assert read(best) == ("9", "9")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best"]


def test_a_move_that_was_interrupted_between_two_forms_is_finished(tmp_path):
    best = tmp_path / "best"
    aside(tmp_path, 7).move_to(best, BOTH)
    nine = aside(tmp_path, 9)
    in_the_way = nine.path / "old-model.keras"
    in_the_way.mkdir()
    with pytest.raises(CheckpointError):
        nine.move_to(best, BOTH)
    assert read(best) == ("9", "7")
    in_the_way.rmdir()
    nine.move_to(best, BOTH)
    assert read(best) == ("9", "9")


def test_a_form_that_a_round_could_not_be_written_in_is_no_other_models(
    tmp_path, caplog
):
    best = tmp_path / "best"
    aside(tmp_path, 7, job="other").move_to(best, BOTH)
    nine = aside(tmp_path, 9, names=("saved_model",))
    assert nine.move_to(best, BOTH) == [best / "saved_model"]
    assert left_in(best) == [".round", "saved_model"]
    assert "model.keras, which is of another model" in caplog.text


def test_a_round_that_is_late_is_not_moved_over_a_later_one(tmp_path):
    """Whoever moved the later one was killed before it removed the earlier."""
    best = tmp_path / "best"
    seven, nine = aside(tmp_path, 7), aside(tmp_path, 9)
    kept = tmp_path / "kept"
    seven.path.rename(kept)
    nine.move_to(best, BOTH)
    kept.rename(seven.path)
    seven.move_to(best, BOTH)
    assert read(best) == ("9", "9")
    nine.move_to(best, BOTH)
    assert left_in(tmp_path) == ["best"]


def test_whose_model_is_in_the_place_of_one_that_is_gone_is_said(tmp_path):
    best = tmp_path / "best"
    nine = aside(tmp_path, 9)
    nine.move_to(best, BOTH)
    aside(tmp_path, 1, job="other").move_to(best, BOTH)
    with pytest.raises(CheckpointError, match="one of job other;"):
        nine.move_to(best, BOTH)


def test_what_is_left_aside_is_removed_where_a_file_system_has_no_locks(
    tmp_path, monkeypatch
):
    def no_locks(*_):
        raise OSError(38, os.strerror(38))

    killed = Aside(tmp_path, "best", of(6))
    killed.path.mkdir()
    (killed.path / ".export-x").mkdir()
    monkeypatch.setattr(fcntl, "flock", no_locks)
    clear_left_aside(tmp_path, of(7))
    assert left_in(tmp_path) == []


def test_an_unnamed_model_of_before_the_job_began_is_not_taken(tmp_path):
    """It is another job's, of an earlier version."""
    life = int(time.time() * 1000) + 60_000
    nine = aside(tmp_path, 9, life=life)
    nine.path.rename(tmp_path / ".kept-best-9")
    with pytest.raises(CheckpointError, match="the model is not there"):
        nine.move_to(tmp_path / "best", BOTH)


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_models_of_earlier_rounds_are_removed_but_the_one_that_is_kept(tmp_path):
    for number in (5, 7, 11):
        aside(tmp_path, number)
    aside(tmp_path, 9).clear(but=7)
    assert left_in(tmp_path) == [f".kept-best-digits-100-{n}" for n in (11, 7, 9)]


def test_what_lost_masters_left_aside_is_removed_with_the_last_model(tmp_path):
    for number in (5, 7, 11):
        aside(tmp_path, number)
    aside(tmp_path, 2_000_004, life=99)  # of the job before it was begun anew
    written = Aside(tmp_path, "restored", of(6))
    written.path.mkdir()
    (tmp_path / "best").mkdir()
    with _work_folder(written.path):
        clear_left_aside(tmp_path, of(7))
        left = [".kept-best-digits-100-11", ".kept-restored-digits-100-6", "best"]
        assert left_in(tmp_path) == left
    clear_left_aside(tmp_path, of(11))
    assert left_in(tmp_path) == ["best"]


def test_models_of_other_jobs_and_of_a_later_life_are_left_alone(tmp_path):
    """Another job writes in that folder, or a worker has outlived its job."""
    for job, life in (("digits", 101), ("digits-5", 100), ("other", 1)):
        aside(tmp_path, 3, job=job, life=life)
    before = left_in(tmp_path)
    clear_left_aside(tmp_path, of(9))
    aside(tmp_path, 9).move_to(tmp_path, BOTH)
    assert [name for name in left_in(tmp_path) if name.startswith(".kept")] == before
    # Nor does what they have in its place pass for one's own.
    for whose in ({"job": "other"}, {"life": 101}):
        with pytest.raises(CheckpointError, match="the model is not there"):
            Aside(tmp_path, "restored", of(3, **whose)).move_to(tmp_path, BOTH)


def test_a_model_that_an_earlier_version_wrote_aside_is_moved(tmp_path):
    nine = aside(tmp_path, 9)
    nine.path.rename(tmp_path / ".kept-best-9")
    best = tmp_path / "best"
    nine.move_to(best, BOTH)
    assert read(best) == ("9", "9")
    assert left_in(tmp_path) == ["best"]
    # That version had told of the round alone: of whichever job's.
    (best / ".round").write_text("1000009")
    aside(tmp_path, 11).move_to(best, BOTH)
    assert read(best) == ("11", "11")


def test_a_model_that_another_worker_wrote_elsewhere_is_missed(tmp_path):
    with pytest.raises(CheckpointError, match="one folder for all workers"):
        Aside(tmp_path, "best", of(9)).move_to(tmp_path / "best", BOTH)


def test_a_model_of_before_in_another_form_is_not_told_as_this_one(tmp_path):
    best = tmp_path / "best"
    aside(tmp_path, 7).move_to(best, BOTH)
    nine = aside(tmp_path, 9, names=("model.keras",))
    assert nine.move_to(best, ["keras"]) == [best / "model.keras"]
