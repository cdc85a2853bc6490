"""What a job's code says cannot steer the terminal of who looks at the job."""

import json

import pytest
from elasticdl.job import history
from elasticdl.job.plain import plain, plain_json

EVIL = "\x1b]52;c;cm0gLXJm\x07\x1b[2J\x9b31m\x08\x7f\r"
# What stays of it is words.
LEFT = "]52;c;cm0gLXJm[2J31m"


def test_control_characters_go_and_lines_stay() -> None:
    assert plain(f"a{EVIL}b\n\tc") == f"a{LEFT}b\n\tc"


@pytest.mark.parametrize("ascii_only", [True, False])
def test_they_go_from_the_texts_and_keys_of_a_document(ascii_only: bool) -> None:
    said = {f"loss{EVIL}": [f"{EVIL}{EVIL}x", r"C:\u001b \b", "a\\\x1b\n", "ü"]}
    found = json.loads(plain_json(json.dumps(said, ensure_ascii=ascii_only)))
    assert found == {f"loss{LEFT}": [f"{LEFT}{LEFT}x", r"C:\u001b \b", "a\\\n", "ü"]}


def test_a_history_has_none() -> None:
    line = {"decision": {"time": 1.0, "kind": "x", "text": EVIL, "detail": EVIL}}
    (decision,) = history.parse([json.dumps(line)]).decisions
    assert decision.text == decision.detail == LEFT
