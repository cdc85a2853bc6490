"""What a worker's first import leaves out, and what it leaves alone."""

import gc
import importlib
import sys

import pytest
from elasticdl.worker.quick import quick_import

NAME = "sklearn"


def test_a_package_that_no_job_needs_is_hidden_from_the_import_alone(
    monkeypatch, tmp_path
):
    (tmp_path / f"{NAME}.py").write_text("HERE = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    with quick_import(), pytest.raises(ImportError):
        importlib.import_module(NAME)
    assert importlib.import_module(NAME).HERE
    del sys.modules[NAME]  # else it would be the one of the tests after this


def test_one_that_is_imported_already_stays(monkeypatch):
    there = object()
    monkeypatch.setitem(sys.modules, NAME, there)
    with quick_import():
        assert sys.modules[NAME] is there
    assert sys.modules[NAME] is there


def test_garbage_is_collected_afterwards_also_if_the_import_fails():
    collects = []

    def fails():
        collects.append(gc.isenabled())
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), quick_import():
        fails()
    assert [*collects, gc.isenabled()] == [False, True]
    assert gc.get_freeze_count() > 0
    gc.unfreeze()


def test_a_second_import_keeps_no_garbage(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", object())
    with quick_import():
        assert gc.isenabled()
    assert gc.get_freeze_count() == 0
