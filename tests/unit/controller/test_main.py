"""What the controller is told on its command line."""

import pytest
from elasticdl.controller.main import make_parser, pace_of, settings_of, times_of
from elasticdl.errors import SpecError


def parsed(*options):
    args = make_parser().parse_args(["--namespace", "ml", *options])
    return settings_of(args), pace_of(args), times_of(args)


def test_without_options_all_is_in_order():
    settings, pace, times = parsed()
    assert settings.grant_seconds == 1800
    assert pace.stale == times.lasts == 15


@pytest.mark.parametrize(
    "options",
    [
        ["--fence-seconds", "15"],  # somebody else may have the Lease by then
        ["--fence-seconds", "10", "--lease-seconds", "9"],
        ["--renew-seconds", "10"],  # it would stop writing between two renewals
        ["--renew-seconds", "0"],
        ["--grant-seconds", "-1"],
        ["--grant-seconds", "nan"],
        ["--stale-seconds", "1"],  # no watch is as short
        ["--rest-seconds", "inf"],
        ["--freeze-seconds", "-1"],
        ["--ceilings", "cpu=0"],
    ],
)
def test_times_that_do_not_go_together_are_refused(options):
    with pytest.raises(SpecError, match=options[0]):
        parsed(*options)
