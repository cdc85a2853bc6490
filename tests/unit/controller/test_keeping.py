"""What is kept of ConfigMaps, whoever writes them."""

from elasticdl.controller.jobs import Classes, JobReader, is_job, only_renewed
from elasticdl.controller.keeping import MOST_OF_NAMESPACE, Keeping, KeptJobs, length_of
from elasticdl.job.grant import Grant, format_grant
from elasticdl.job.values.bounded import MOST_CHARACTERS
from elasticdl.planner.view import JobKey

from tests.unit.controller.test_reading import NOW, VALUES, config_map

GRANT = Grant(4, (3, 1), NOW + 600, "ops/controller")


def large(characters: int, **about):
    item = config_map("#" * characters)
    item["metadata"] |= about
    return item


def test_what_is_kept_of_a_job_says_all_that_is_read_of_it():
    notes = {"elasticdl.org/workers": format_grant(GRANT), "elasticdl.org/stop": "now"}
    item = config_map(VALUES, annotations=notes)
    item["metadata"] |= {"managedFields": ["..."], "resourceVersion": "7"}
    item["data"]["other"] = "x" * 1000
    kept = Keeping().lean(item)
    assert JobReader().read(kept, Classes()) == JobReader().read(item, Classes())
    assert "managedFields" not in kept["metadata"]
    assert length_of(kept) < 1000


def test_of_other_config_maps_no_text_is_kept():
    item = config_map("#" * 1000)
    item["metadata"]["name"] = "another"
    kept = Keeping().lean(item)
    assert not is_job(kept)
    assert "data" not in kept


def test_a_job_of_too_long_texts_is_left_alone_with_the_reason(caplog):
    kept = Keeping().lean(large(MOST_CHARACTERS))
    assert length_of(kept) == 0
    assert JobReader().read(kept, Classes()) is None
    assert "ml/digits is left alone: its texts have" in caplog.text


def test_of_one_namespace_so_many_texts_are_kept(caplog):
    keeping = Keeping()
    items = [large(500_000, uid=f"uid-{number}") for number in range(40)]
    kept = [keeping.lean(item) for item in items]
    assert sum(map(length_of, kept)) <= MOST_OF_NAMESPACE
    assert JobReader().read(kept[-1], Classes()) is None
    assert "the texts of its namespace's jobs have more than" in caplog.text


def test_a_job_whose_text_is_kept_again_is_read_again():
    reader = JobReader()
    reader.read(Keeping({"other": MOST_OF_NAMESPACE}).lean(config_map()), Classes())
    known = reader.read(Keeping().lean(config_map()), Classes())
    assert known is not None


def test_no_grant_is_as_long_as_an_annotation_may_be():
    notes = {"elasticdl.org/workers": format_grant(GRANT) + " " * 200_000}
    kept = Keeping().lean(config_map(annotations=notes))
    known = JobReader().read(kept, Classes())
    assert known is not None
    assert known.grant is None


def test_a_grant_that_was_only_renewed_is_seen_as_such():
    later = Grant(4, (3, 1), NOW + 900, "ops/controller")
    before, after = (
        Keeping().lean(
            config_map(annotations={"elasticdl.org/workers": format_grant(one)})
        )
        for one in (GRANT, later)
    )
    assert only_renewed(before, after)


def test_what_is_kept_is_kept_when_all_is_listed_again():
    kept = Keeping({"other": MOST_OF_NAMESPACE - 9000, "elasticdl-digits": 9000})
    assert "refused" not in kept.lean(large(900))
    labels = {"elasticdl-job-name": "new"}
    other = large(9000, name="elasticdl-new", labels=labels)
    assert "refused" in kept.lean(other)


def job_of(number: int, characters: int):
    name = f"elasticdl-j{number}"
    return JobKey("ml", f"j{number}"), large(
        characters, name=name, labels={"elasticdl-job-name": f"j{number}"}
    )


def test_a_job_that_is_kept_anew_keeps_its_place_so_that_no_plan_is_made_for_it():
    kept = KeptJobs()
    for number in (1, 2, 3):
        key, item = job_of(number, 100)
        kept.put(key, kept.keeping("ml").lean(item))
    key, item = job_of(1, 200)
    kept.put(key, kept.keeping("ml").lean(item))
    assert [one.name for one in kept] == ["j1", "j2", "j3"]
    assert length_of(kept.get(key)) >= 200


def test_there_is_room_for_a_job_that_waits_once_others_are_gone():
    kept = KeptJobs()
    number = 0
    while not kept.has_room("ml"):
        number += 1
        key, item = job_of(number, MOST_CHARACTERS - 1000)
        kept.put(key, one := kept.keeping("ml").lean(item))
        if "refused" in one:
            break
    assert not kept.has_room("ml")
    kept.drop(job_of(1, 0)[0])
    assert kept.has_room("ml")
    kept.drop(key)
    assert not kept.has_room("ml")
