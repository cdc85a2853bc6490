"""The stock worker image runs model code from a ConfigMap and from a volume."""

import pytest

from tests.e2e.jobs import mnist

NET = """
import keras

def model():
    net = keras.Sequential([keras.Input((30,)), keras.layers.Dense(1)])
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    net.compile(optimizer="adam", loss=loss)
    return net
"""
LITTLE = {"resources": {"memory": "1Gi"}}
VALUES = {
    "kind": "job",
    "job": {
        "name": "net",
        "data": {
            "prepare": {"dataset": "breast_cancer"},
            "training": "data/breast_cancer/train",
        },
        "training": {"epochs": 2},
        "ps": LITTLE,
        "worker": LITTLE,
    },
}


@pytest.fixture
def in_config_map(kube):
    """Put the module into a ConfigMap; return the zoo, and what the pods need."""
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "models"},
            "data": {"net.py": NET},
        }
    )
    mounted = {
        "volumes": [{"name": "models", "configMap": {"name": "models"}}],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }
    return "/models", {"pods": {"worker": mounted}}


@pytest.fixture
def on_volume(kube, images, tmp_path):
    """Copy the module to the claim that every pod mounts; the same."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "net.py").write_text(NET)
    mnist.copy_to_claim(kube, folder, image=images.ps)
    return "/data/models", {}


@pytest.mark.parametrize(
    "place", ["in_config_map", pytest.param("on_volume", marks=pytest.mark.soak)]
)
def test_the_stock_image_runs_a_model_that_is_no_part_of_it(job, place, request):
    zoo, more = request.getfixturevalue(place)
    net = job(VALUES | more, model={"zoo": zoo, "definition": "net.model"})
    assert net.wait_succeeded().records == 2 * 455
