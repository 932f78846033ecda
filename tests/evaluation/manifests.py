"""Manifests of stores that tests write by hand."""

from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.store.manifest import AttackRecord, DataRecord, Manifest, ModelRecord, PredictorRecord
from robustdeq.threat import Linf


def data(images=2, **changes):
    """The record of so many images."""
    return DataRecord(**{"name": "d", "split": "test", "images": images, "limit": None, "sha256": "x", **changes})


def record(name, hash=None, **changes):
    """The record of an attack, PGD on the ready-made oracle unless changed."""
    spec = AttackSpec(**{"name": name, "attack": "pgd", "eps": 0.05, "oracle": "ready", **changes})
    return AttackRecord(spec=spec, hash=hash or spec.hash)


def manifest(records=(), **changes):
    """A manifest of one deployed predictor and these attacks."""
    usual = {
        "model": ModelRecord(name="model", kind="model", hash="model", metadata={}, config="model"),
        "predictors": {"deployed": PredictorRecord(deployed_state="2", states=["1", "2", "final"], config="model")},
        "dynamic": True,
        "data": data(),
        "threat": Linf(0.05),
        "seed": 0,
        "dtype": "float64",
        "batch_size": 2,
        "shard_size": 2,
        "union": False,
        "all_states": True,
        "attacks": {entry.spec.name: entry for entry in records},
        "suites": ["grid"],
        "asked": [],
        "notes": [],
        "runs": [],
    }
    return Manifest(**{**usual, **changes})
