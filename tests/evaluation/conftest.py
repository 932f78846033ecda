import pytest

from robustdeq.evaluation import evaluate
from robustdeq.threat import Linf
from tests.evaluation import predictors

UNROLLINGS = (1, 5)


@pytest.fixture(scope="session")
def model():
    return predictors.small_deq()


@pytest.fixture(scope="session")
def deployed():
    return predictors.deployed()


@pytest.fixture(scope="session")
def images():
    return predictors.images(16)


@pytest.fixture(scope="session")
def grid_verdict(deployed, images, tmp_path_factory):
    """The grid on a small DEQ with fewer unrollings: 12 attacks, 16 images in two shards."""
    out = tmp_path_factory.mktemp("grid") / "store"
    options = {"threat": Linf(predictors.EPS), "unrollings": UNROLLINGS, "keep_images": True}
    return evaluate(deployed, images, "grid", out, batch_size=5, shard_size=10, **options)
