"""Checkpoints on the Hugging Face Hub, which is a folder here."""

import json
import shutil

import pytest
import torch
from huggingface_hub import constants, hub_mixin

import robustdeq as rd
from robustdeq.cli.arguments.checkpoint import resolve
from robustdeq.models.hub import fetch

COMMIT = "0123456789012345678901234567890123456789"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The hub's cache, into which pushes go; there is no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    class Api:
        def __init__(self, **_):
            pass

        def create_repo(self, repo_id, **_):
            return type("Repo", (), {"repo_id": repo_id})

        def upload_folder(self, *, repo_id, folder_path, **_):
            folder = tmp_path / "hub" / f"models--{repo_id.replace('/', '--')}"
            shutil.copytree(folder_path, folder / "snapshots" / COMMIT)
            (folder / "refs").mkdir()
            (folder / "refs" / "main").write_text(COMMIT)
            return f"https://hub.example/{repo_id}/commit/{COMMIT}"

    monkeypatch.setattr(hub_mixin, "HfApi", Api)
    return tmp_path / "hub"


class Numbers:
    def table(self):
        return "AutoAttack 31.00%  [28.21%, 33.94%]"


def nano():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = rd.create_model("mdeq-nano").eval()
    model.metadata = {"dataset": "digits", "eps": 0.15, "classes": list("0123456789"), "data_root": "/home/me/data"}
    model.metadata |= {"objective": "trades", "held_out": 100, "validation_clean": 0.5, "validation_pgd": 0.25}
    return model


def test_a_pushed_model_is_loaded_by_its_name_on_the_hub(hub):
    model = nano()
    model.push_to_hub("someone/model", results=[Numbers()])
    x = torch.rand(2, 1, 8, 8)
    for name in ("hf:someone/model", f"hf:someone/model@{COMMIT}"):
        again = rd.load(name)
        assert torch.equal(again(x), model(x))
    assert isinstance(rd.MDEQ.from_pretrained("someone/model"), rd.MDEQ)
    checkpoint = resolve("hf:someone/model")
    assert (checkpoint.dataset, checkpoint.eps) == ("digits", 0.15)
    assert "data_root" not in again.metadata  # a path of the machine that pushed
    assert model.metadata["data_root"] == "/home/me/data"


def test_the_card_says_data_threat_numbers_how_to_reproduce_and_limits(hub):
    nano().push_to_hub("someone/model", results=[Numbers()])
    card = (hub / "models--someone--model" / "snapshots" / COMMIT / "README.md").read_text()
    for words in (
        "library_name: robustdeq", "rd.load('hf:someone/model')", "Data: digits", "Linf, eps 0.15", "objective trades",
        "AutoAttack 31.00%  [28.21%, 33.94%]", "25.0% under PGD-10", "they are no result",
        "robustdeq benchmark hf:someone/model --limit 1000", "## Limits",
    ):  # fmt: skip
        assert words in card
    assert "/home/me" not in card
    nano().save_pretrained(hub / "plain")
    assert sorted(p.name for p in (hub / "plain").iterdir()) == ["config.json", "model.safetensors"]


def test_nothing_but_configuration_and_weights_is_fetched(hub, monkeypatch):
    asked = {}

    def snapshot(repo, **options):
        asked.update(options, repo=repo)
        return str(hub)

    monkeypatch.setattr("robustdeq.models.hub.repository.snapshot_download", snapshot)
    with pytest.raises(rd.CheckpointError, match=r"has no config\.json"):
        rd.load("hf:someone/model")
    assert asked == {"repo": "someone/model", "revision": None, "allow_patterns": ["config.json", "model.safetensors"]}
    assert fetch("hf:a/b@v1", []) == hub
    assert asked["revision"] == "v1"


def test_a_model_on_the_hub_that_needs_code_is_refused_without_trust(hub):
    nano().push_to_hub("someone/model")
    config = hub / "models--someone--model" / "snapshots" / COMMIT / "config.json"
    content = json.loads(config.read_text())
    content |= {"architecture": "evil_module:build", "options": {}}
    config.write_text(json.dumps(content))
    with pytest.raises(rd.CheckpointError):
        rd.load("hf:someone/model")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hf:nobody/nothing", "cannot be reached"),
        ("hf:a/b/c", "expected hf:user/name"),
        ("hf:", "expected hf:user/name"),
    ],
)
def test_a_name_that_cannot_be_fetched_is_one_line(hub, name, said):
    with pytest.raises(rd.CheckpointError, match=said) as error:
        resolve(name)
    assert "\n" not in str(error.value)
