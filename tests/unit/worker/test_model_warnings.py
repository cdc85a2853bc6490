import logging

import pytest
from elasticdl.worker.model_warnings import ModelWarnings


@pytest.fixture
def warnings():
    made = ModelWarnings()
    logger = logging.getLogger("elasticdl")
    logger.addHandler(made)
    yield made
    logger.removeHandler(made)


def test_a_warning_of_the_model_is_sent_until_it_has_arrived_and_then_no_more(warnings):
    log = logging.getLogger("elasticdl.model.measures")
    log.warning("state %s is averaged", "a")
    assert warnings.send() == ("state a is averaged",)
    log.warning("state %s is averaged", "b")  # while a heartbeat is on its way
    warnings.delivered()
    assert warnings.send() == ("state b is averaged",)
    assert warnings.send() == ("state b is averaged",)  # the first one was lost
    warnings.delivered()
    log.warning("state a is averaged")
    assert warnings.send() == ()


def test_what_is_not_of_the_model_or_its_data_stays_in_the_log(warnings):
    logging.getLogger("elasticdl.worker.tasks.stream").warning("Master not reached")
    logging.getLogger("elasticdl.model").info("the model is built")
    assert warnings.send() == ()


def test_a_sentence_that_differs_in_each_batch_does_not_fill_heartbeats(warnings):
    for number in range(1000):
        logging.getLogger("elasticdl.data.reader").warning("%d", number)
    assert len(warnings.send()) == 51
    assert warnings.send()[-1] == "There are more warnings in the log of a worker"


def test_a_warning_is_one_line_whatever_a_name_has_in_it(warnings):
    name = "a\nb\x1b[31m" + 3_000 * " x"
    logging.getLogger("elasticdl.model.measures").warning("state %s", name)
    (said,) = warnings.send()
    assert said.startswith("state a b[31m x x")
    assert said.endswith(" ...")
    assert len(said) <= 2_000
