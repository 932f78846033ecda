"""A training run's folder: resuming, refusing, what is written."""

import errno
import json
import os
from dataclasses import replace

import pytest
import torch

import robustdeq as rd
from robustdeq.host.files import InUseError, held
from robustdeq.training.checkpoint import TrainingState, completed, load_state, record_start, save_state
from robustdeq.training.logs import Log, read_log
from robustdeq.training.trainer import Trainer
from tests.training.runs import RESNET, assert_same_run, config, resnet_config, stored_step


def train(out, changes=None, **options):
    """A run of a ResNet: what these tests claim of the folder does not depend on the model."""
    trainer = Trainer(resnet_config(changes), out, device="cpu", **options)
    trainer.fit()
    return trainer


def train_deq(out, changes=None, **options):
    trainer = Trainer(config(changes), out, device="cpu", **options)
    trainer.fit()
    return trainer


def test_two_trainings_do_not_write_into_one_folder(tmp_path):
    with held(tmp_path), pytest.raises(InUseError, match="another process is writing into"):
        train(tmp_path)
    assert os.listdir(tmp_path) == [".lock"]


@pytest.fixture
def stopped(monkeypatch):
    """Make training stop as if killed, after this many further steps."""

    def stop_after(steps):
        original = Trainer._train_step
        done = []

        def limited(self):
            if len(done) == steps:
                raise KeyboardInterrupt
            done.append(self.step)
            return original(self)

        monkeypatch.setattr(Trainer, "_train_step", limited)
        return done

    yield stop_after
    monkeypatch.undo()


AVERAGED_CARRIED = {"schedule": {"ema": 0.9}, "precision": "64-true", "objective": {"inner": "carried", "steps": 2}}
AVERAGED_CARRIED |= {"validation": {"every": 4}}


@pytest.mark.parametrize("changes", [RESNET, AVERAGED_CARRIED], ids=["ResNet", "carried with an average"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_by_bit(tmp_path, monkeypatch, stopped, changes):
    train_deq(tmp_path / "straight", changes)
    stopped(3)  # one step after the checkpoint: its row must be dropped and written again
    with pytest.raises(KeyboardInterrupt):
        train_deq(tmp_path / "killed", changes)
    assert [row["step"] for row in read_log(tmp_path / "killed")] == ["1", "2", "3"]
    monkeypatch.undo()
    taken = stopped(99)
    train_deq(tmp_path / "killed", changes)
    assert taken == [2, 3]  # from the checkpoint, not from the start
    assert_same_run(tmp_path / "straight", tmp_path / "killed")


def test_training_a_finished_run_again_changes_nothing(tmp_path, stopped):
    first = train(tmp_path)
    files = [tmp_path / name for name in ("state.pt", "metrics.csv", "run.json", "last/model.safetensors")]
    before = [(f.read_bytes(), f.stat().st_mtime_ns) for f in files if f.name != "metrics.csv"]
    metrics = (tmp_path / "metrics.csv").read_bytes()
    stopped(0)
    again = train(tmp_path)
    assert before == [(f.read_bytes(), f.stat().st_mtime_ns) for f in files if f.name != "metrics.csv"]
    assert metrics == (tmp_path / "metrics.csv").read_bytes()
    assert first.validation is not None
    assert again.validation == first.validation
    assert again.best == first.best


def test_a_state_of_an_earlier_version_keeps_its_validation(tmp_path, stopped):
    first = train(tmp_path)
    state = load_state(tmp_path)
    save_state(tmp_path, replace(state, inner=None, standard=None, validated_at=None))
    stopped(0)
    assert train(tmp_path).validation == replace(first.validation, inner=None, standard=None)


def test_a_changed_configuration_is_refused_and_the_difference_shown(tmp_path):
    train(tmp_path, {"schedule": {"max_steps": 2}})
    state = (tmp_path / "state.pt").read_bytes()
    with pytest.raises(ValueError, match="another configuration") as error:
        train(tmp_path, {"schedule": {"max_steps": 2, "lr": 0.02}, "objective": {"kind": "pgdat"}})
    message = str(error.value)
    assert str(tmp_path) in message
    assert "objective.kind: 'trades' in the run, 'pgdat' asked for" in message
    assert "schedule.lr: " in message
    assert "0.02 asked for" in message
    assert "seed" not in message
    assert (tmp_path / "state.pt").read_bytes() == state


def test_other_training_images_are_refused(tmp_path, monkeypatch):
    train(tmp_path, {"schedule": {"max_steps": 2}})
    monkeypatch.setattr("robustdeq.data.Images.digest", lambda self: "another")
    with pytest.raises(ValueError, match=r"other images .*another --out"):
        train(tmp_path, {"schedule": {"max_steps": 3}})


def test_a_stored_configuration_without_a_newer_field_has_its_default():
    defaults = {"a": {"b": 1, "new": 5}, "c": {}, "new": {"d": 6}}
    stored = {"a": {"b": 2}, "c": {"free": 7}}
    assert completed(stored, defaults) == {"a": {"b": 2, "new": 5}, "c": {"free": 7}, "new": {"d": 6}}


def test_an_option_that_is_added_is_refused_too(tmp_path):
    train(tmp_path, {"schedule": {"max_steps": 2}})
    with pytest.raises(ValueError, match=r"model\.options\.num_classes: None in the run, 10 asked for"):
        train(tmp_path, {"schedule": {"max_steps": 3}, "model": {"options": {"num_classes": 10}}})


def test_the_learning_rate_follows_the_whole_schedule_wherever_a_run_ends(tmp_path):
    rates = []
    for steps in (2, 4):
        train(tmp_path / str(steps), {"schedule": {"max_steps": steps, "warmup_steps": 0}})
        rates.append([row["lr"] for row in read_log(tmp_path / str(steps))])
    assert rates[0] == rates[1][:2]
    peak = config().schedule.lr
    assert float(rates[0][0]) == peak
    assert peak > float(rates[1][3]) > 0.9 * peak  # 4 steps of two epochs


def test_a_resumed_run_records_the_step_and_the_versions_it_resumed_with(tmp_path):
    for steps in (1, 3, 3, 4):
        train(tmp_path, {"schedule": {"max_steps": steps}})
    run = json.loads((tmp_path / "run.json").read_text())
    assert [entry["step"] for entry in run["resumed"]] == [1, 3]  # a finished one does not go on
    assert all({"versions", "commit", "hardware"} <= entry.keys() for entry in run["resumed"])
    assert run["config"]["schedule"]["max_steps"] == 4


def test_the_remaining_time_is_that_of_the_phase(tmp_path):
    """The cheap steps of pretraining say nothing about the cost of the adversarial steps."""
    reports = []
    train(tmp_path, {"schedule": {"pretrain_steps": 2}}, report=reports.append)
    assert [r.phase for r in reports] == ["pretrain", "pretrain", "train", "train"]
    assert [r.remaining > 0 for r in reports] == [True, False, True, False]


def test_resumptions_whose_steps_were_lost_are_not_recorded(tmp_path):
    for step in (None, 5, 5, 7, 6):
        record_start(tmp_path, {"seed": 0}, {"commit": str(step)}, step)
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["commit"], [entry["step"] for entry in run["resumed"]]) == ("None", [5, 6])
    (tmp_path / "run.json").unlink()
    record_start(tmp_path, {"seed": 0}, {"commit": "a"}, 8)
    assert [e["step"] for e in json.loads((tmp_path / "run.json").read_text())["resumed"]] == [8]


def test_a_run_records_its_configuration_and_the_versions_it_was_made_with(tmp_path):
    train(tmp_path, {"seed": 5, "schedule": {"max_steps": 1}})
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["config"]["seed"] == 5
    assert run["config"]["schedule"]["max_steps"] == 1
    assert run["config"]["objective"]["states"] == "final"
    assert run["versions"].keys() >= {"python", "torch", "robustdeq"}
    assert {"commit", "hardware"} <= run.keys()


def test_a_run_writes_metrics_checkpoints_and_tensorboard(tmp_path):
    reports = []
    trainer = train(tmp_path, report=reports.append)
    rows = read_log(tmp_path)
    assert [row["step"] for row in rows] == ["1", "2", "3", "4"]
    assert [row["phase"] for row in rows] == ["pretrain", "train", "train", "train"]
    assert [row["validation_pgd"] != "" for row in rows] == [False, True, False, True]
    assert list((tmp_path / "tensorboard").iterdir())
    assert [r.step for r in reports] == [1, 2, 3, 4]
    assert reports[-1].remaining == 0
    assert reports[-1].rate > 0
    last = rd.load(tmp_path / "last")
    assert all(torch.equal(a, b) for a, b in zip(last.parameters(), trainer.model.parameters(), strict=True))
    assert last.metadata["dataset"] == "digits"
    assert last.metadata["eps"] == trainer.config.objective.build().threat.eps
    assert last.metadata["step"] == 4
    assert last.metadata["validation_clean"] == trainer.validation.clean
    assert last.metadata["validation_pgd"] == trainer.validation.pgd


def test_the_average_is_what_is_saved_if_there_is_one(tmp_path):
    trainer = train(tmp_path, {"schedule": {"ema": 0.5, "max_steps": 2}})
    last = rd.load(tmp_path / "last")
    for saved, average, own in zip(
        last.parameters(), trainer.average.parameters(), trainer.model.parameters(), strict=True
    ):
        assert torch.equal(saved, average)
        assert not own.requires_grad or not torch.equal(saved, own)


def test_the_best_checkpoint_is_the_one_with_the_highest_validation_pgd_accuracy(tmp_path, monkeypatch):
    scores = iter([3, 9, 5, 9])
    monkeypatch.setattr("robustdeq.training.trainer.correct_counts", lambda *_, **__: [20, next(scores), 0, 0])
    trainer = train(tmp_path, {"validation": {"every": 1}})
    assert trainer.best == 9 / 20
    assert rd.load(tmp_path / "best").metadata["step"] == 2
    assert rd.load(tmp_path / "last").metadata["step"] == 4


def test_the_checkpoint_is_chosen_on_held_out_images_and_test_images_are_never_touched(tmp_path, monkeypatch):
    class Untouchable:
        def __getattr__(self, name):
            raise AssertionError(f"training looked at the test images: .{name}")

    trainer = Trainer(resnet_config(), tmp_path, device="cpu")
    object.__setattr__(trainer.data, "test", Untouchable())
    seen = []

    def counting(model, x, y, attacks, **options):
        seen.append(x)
        return [0] * (1 + len(attacks))

    monkeypatch.setattr("robustdeq.training.trainer.correct_counts", counting)
    trainer.fit()
    held_out = trainer.data.validation.pixels01()
    assert all(torch.equal(x, held_out[:20]) for x in seen)
    assert len(seen) == 2


def test_validation_does_not_depend_on_batches():
    from robustdeq.data import load_dataset
    from robustdeq.threat import Linf
    from robustdeq.training.validation import correct_counts, pgd_attack

    torch.manual_seed(0)
    model = rd.create_model("mdeq-nano").double()
    images = load_dataset("digits").validation.subset(slice(0, 6))
    x, y = images.pixels01(dtype=torch.float64), images.labels
    attacks = [pgd_attack(model, Linf(0.1), steps=2, step_size=0.05, seed=0)]
    whole = correct_counts(model, x, y, attacks, batch_size=6)
    parts = [correct_counts(model, x[i : i + 3], y[i : i + 3], attacks, batch_size=2, first=i) for i in (0, 3)]
    assert whole == [sum(counts) for counts in zip(*parts, strict=True)]
    assert model.training


def test_a_full_disk_leaves_the_old_state(tmp_path, monkeypatch):
    state = TrainingState(step=1, model={"w": torch.ones(3)}, optimizer={}, average=None, best=0.5, config={})
    save_state(tmp_path, state)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_state(tmp_path, TrainingState(step=2, model={}, optimizer={}, average=None, best=0.5, config={}))
    assert load_state(tmp_path).step == 1
    assert [f.name for f in tmp_path.iterdir()] == ["state.pt"]


def test_a_damaged_state_is_refused_with_its_path(tmp_path):
    (tmp_path / "state.pt").write_bytes(b"no state")
    with pytest.raises(ValueError, match="is damaged") as error:
        load_state(tmp_path)
    assert str(tmp_path / "state.pt") in str(error.value)


def test_a_state_file_cannot_execute_code(tmp_path):
    class Malicious:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    torch.save({"step": Malicious()}, tmp_path / "state.pt")
    with pytest.raises(ValueError, match="cannot be read"):
        load_state(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_a_resumed_log_drops_later_rows_and_a_line_that_was_cut_short(tmp_path):
    log = Log(tmp_path, resume_step=0)
    for step in (1, 2, 3):
        log.write({"step": step, "loss": 0.5}, rate=1.0)
    log.close()
    with open(tmp_path / "metrics.csv", "a") as file:
        file.write("4,0,tra")
    assert [row["step"] for row in read_log(tmp_path)] == ["1", "2", "3"]
    Log(tmp_path, resume_step=2).close()
    assert [row["step"] for row in read_log(tmp_path)] == ["1", "2"]


@pytest.mark.parametrize("inner", ["cold", "carried"])
@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
def test_training_works_in_every_precision_that_a_cpu_has(tmp_path, precision, inner):
    changes = {"precision": precision, "objective": {"inner": inner}, "schedule": {"max_steps": 2}}
    trainer = train_deq(tmp_path, {**changes, "jacobian": {"weight": 0.4, "probability": 1.0}})
    dtype = torch.float64 if precision == "64-true" else torch.float32
    assert {p.dtype for p in trainer.model.parameters()} == {dtype}
    assert all(float(row["loss"]) < 1000 for row in read_log(tmp_path))
    assert rd.load(tmp_path / "last").metadata["step"] == 2


def test_no_held_out_images_are_refused_before_training(tmp_path):
    with pytest.raises(ValueError, match="held_out"):
        Trainer(config({"data": {"held_out": 0}}), tmp_path, device="cpu")


def test_fields_that_do_not_change_a_step_may_change_when_a_run_is_resumed(tmp_path):
    train(tmp_path, {"schedule": {"max_steps": 2}})
    changes = {"schedule": {"max_steps": 3}, "on_nonfinite": "rollback", "description": "other", "checkpoint_every": 1}
    train(tmp_path, changes)
    assert stored_step(tmp_path) == 3


def test_a_checkpoint_says_which_images_were_held_out_and_when_it_was_validated(tmp_path):
    train(tmp_path, {"schedule": {"max_steps": 2}})
    metadata = rd.load(tmp_path / "last").metadata
    assert metadata["held_out"] > 0
    assert metadata["validation_step"] == metadata["step"] == 2


@pytest.mark.parametrize("changes", [{"objective": {"states": "random"}}, {"jacobian": {"weight": 1.0}}])
def test_a_resnet_has_no_states_to_draw_and_no_jacobian_to_penalise(tmp_path, changes):
    with pytest.raises(ValueError, match="not a DEQ"):
        Trainer(
            config(
                {"model": {"name": "resnet-tiny"}, "jacobian": {"weight": 0.0}, "objective": {"states": "final"}}
                | changes
            ),
            tmp_path,
            device="cpu",
        )
