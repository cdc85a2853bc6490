"""What the chart makes of a TrainingJob, rendered by Helm as it is in the image."""

import asyncio

from elasticdl.client.cluster.api import ClusterClient
from elasticdl.client.cluster.chart import find_chart
from elasticdl.client.cluster.helm import HelmLibrary
from elasticdl.training_jobs.reconcile import reconcile
from elasticdl.training_jobs.rendering import Renderer
from elasticdl.training_jobs.resource import Seen
from elasticdl.training_jobs.verdicts import Reason, Refused, Submit

from tests.unit.scripted_server import Server
from tests.unit.training_jobs.objects import REGISTRY, training_job


def test_what_the_chart_refuses_is_told_in_its_words_alone():
    job = training_job(commonLabels={"elasticdl-job-name": "other"})
    wanted = reconcile(job, Seen(platform=REGISTRY))
    assert isinstance(wanted, Submit)
    server = Server()
    api = server.connection()
    try:
        chart = Renderer(HelmLibrary(), find_chart(), ClusterClient(api, "", "ml"))
        refused = chart.render(job, wanted)
    finally:
        asyncio.run(api.close())
        server.close()
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.INVALID
    assert refused.message == (
        "commonLabels: got `elasticdl-job-name`, expected other labels than the "
        "chart's own: choose another name"
    )
