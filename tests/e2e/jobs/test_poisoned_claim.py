"""What a worker of any job can leave on the claim runs in no master, PS or audit."""

import pytest

from tests.e2e.jobs import mnist
from tests.e2e.releases import values_file

POISON = "import os\nos.write(1, b'HIJACKED')\nos._exit(1)\n"


@pytest.fixture
def poisoned(kube, images, tmp_path):
    """Plant a module of Python and a package of ours where all pods start."""
    package = tmp_path / "elasticdl"
    package.mkdir()
    (package / "__init__.py").write_text(POISON)
    module = tmp_path / "hmac.py"
    module.write_text(POISON)
    for planted in (package, module):
        mnist.copy_to_claim(kube, planted, image=images.ps)


@pytest.mark.usefixtures("poisoned")
def test_modules_on_the_claim_are_not_imported_and_workers_see_their_own_job(
    job, elasticdl
):
    digits = job(values_file("digits.yaml"), training={"epochs": 2})
    assert digits.wait_succeeded().epochs == 2
    assert "HIJACKED" not in digits.master_log()
    assert "every record" in elasticdl("audit", "digits")
