"""manifest.json: what a new one holds, and that earlier versions are still read."""

import json
from pathlib import Path

import pytest

from robustdeq import DEQ, EarlyState, EntropyReduction, create_model, load
from robustdeq.evaluation import Store, Suite, evaluate
from robustdeq.evaluation.store.manifest import Manifest, ManifestError
from robustdeq.models.pretrained import weights_digest
from robustdeq.threat import Linf
from tests.evaluation.manifests import manifest, record
from tests.evaluation.predictors import EPS, images, small_deq

RESULTS = Path(__file__).parents[3] / "results"
KEPT = [path.parent for path in sorted(RESULTS.glob("**/stores/*/manifest.json"))]


def test_a_manifest_that_is_written_and_read_is_the_same():
    written = manifest([record("a"), record("b", limit=3)], notes=["a note"])
    content = json.loads(json.dumps(written.as_json()))
    assert Manifest.from_json(content, "manifest.json") == written
    assert Manifest.from_json(content, "manifest.json").as_json() == content


def test_a_new_manifest_names_the_model_s_kind_and_the_command(tmp_path):
    nano = create_model("mdeq-nano", num_classes=10, in_channels=1).double()
    nothing = Suite("nothing", [])
    command = "robustdeq evaluate mine --suite nothing"
    for predictor, kind in ((nano, "mdeq-nano"), (small_deq(), "mine")):
        out = tmp_path / kind
        evaluate(predictor, images(2), nothing, out, threat=Linf(EPS), budget=0.0, name="mine", command=command)
        content = json.loads((out / "manifest.json").read_text())
        assert (content["model"]["name"], content["model"]["kind"]) == ("mine", kind)
        asked = {"suite": "nothing", "aware": False, "keep_images": False, "command": command}
        assert content["asked"] == [asked]


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: f"{folder.parts[-3]}-{folder.name}")
def test_stores_of_earlier_versions_are_read(folder):
    found = Store(folder).manifest
    assert found.attacks.keys() == json.loads((folder / "manifest.json").read_text())["attacks"].keys()
    assert len(found.asked) >= 1
    again = Manifest.from_json(found.as_json(), "again")
    assert again == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "is not the manifest of a robustdeq store"),
        ({"format_version": 99}, "has format version 99, this robustdeq reads 1: upgrade robustdeq"),
        ({"threat": {}}, "is incomplete: it has no 'norm'; restore it"),
        ({"attacks": [1]}, "is damaged"),
    ],
)
def test_other_files_are_refused_with_the_reason(change, message):
    with pytest.raises(ManifestError, match=message):
        Manifest.from_json({**manifest().as_json(), **change}, "manifest.json")


def test_a_store_from_elsewhere_cannot_name_code_as_the_oracle_of_its_grid():
    content = manifest([record("strongest")]).as_json()
    options = {"state": 3, "steps": 5, "damping": 0.5}
    for oracle, read in (("unrolled", True), ("os:system", False)):
        resolved = {"attack_of_grid": "pgd-i3-K5-l0.5", "oracle": oracle, "oracle_options": options}
        content["attacks"]["strongest"]["resolved"] = resolved
        if read:
            assert Manifest.from_json(content, "manifest.json").attacks["strongest"].resolved is not None
        else:
            with pytest.raises(ManifestError, match="the oracle of the grid is 'unrolled', got 'os:system'"):
                Manifest.from_json(content, "manifest.json")


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: f"{folder.parts[-3]}-{folder.name}")
def test_a_kept_store_names_the_model_that_it_evaluated(folder, monkeypatch):
    monkeypatch.chdir(RESULTS.parent)
    recorded = Store(folder).manifest.model
    model = load(recorded.name)
    deployed = [model]
    if isinstance(model, DEQ):
        deployed += [EarlyState(model, state=8), EarlyState(EntropyReduction(model), state=8)]
    assert recorded.weights_sha256 in [weights_digest(predictor) for predictor in deployed]
