"""The learning rate and the phases, over the steps of a run."""

import pytest

from robustdeq.training.config import ScheduleConfig
from robustdeq.training.trainer import Trainer
from tests.training.runs import config


def test_the_cosine_goes_from_peak_to_final():
    rates = [ScheduleConfig(lr=1.0, final_lr=0.1).learning_rate(step, 100) for step in range(101)]
    assert rates[0] == 1.0
    assert rates[50] == pytest.approx(0.55)
    assert rates[100] == pytest.approx(0.1)
    assert rates == sorted(rates, reverse=True)
    assert ScheduleConfig(lr=1.0, final_lr=0.1).learning_rate(1000, 100) == pytest.approx(0.1)


def test_the_warm_up_is_linear_and_ends_at_the_peak():
    schedule = ScheduleConfig(lr=1.0, final_lr=0.0, warmup_steps=4)
    rates = [schedule.learning_rate(step, 100) for step in range(6)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[5] < 1.0


@pytest.mark.parametrize(("warmup", "top"), [(0, 39), (10, 9)])
def test_one_cycle_is_a_line_up_and_a_line_down(warmup, top):
    schedule = ScheduleConfig(kind="onecycle", lr=1.0, final_lr=0.1, warmup_steps=warmup)
    rates = [schedule.learning_rate(step, 100) for step in range(101)]
    assert rates[top] == max(rates) == 1.0
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[(top + 101) // 2] == pytest.approx(0.55)
    assert rates[100] == pytest.approx(0.1)


@pytest.fixture
def make_trainer(tmp_path):
    def make(changes):
        return Trainer(config(changes), tmp_path, device="cpu")

    return make


def penalties(trainer, steps):
    """The weight of the penalty at each of these steps."""
    from robustdeq.training import Draws

    found = []
    for trainer.step in steps:
        phase = "pretrain" if trainer.step < trainer.config.schedule.pretrain_steps else "train"
        found.append(trainer._penalty(phase, Draws(trainer.config.seed, trainer.step)))
    return found


def test_the_jacobian_penalty_is_on_a_share_of_the_steps_between_pretraining_and_its_last_epoch(make_trainer):
    trainer = make_trainer(
        {
            "jacobian": {"weight": 0.4, "probability": 0.3, "until_epoch": 20},
            "schedule": {"pretrain_steps": 50, "batch_size": 12, "epochs": 30, "max_steps": None},
        }
    )
    assert trainer.steps_per_epoch == 100
    found = penalties(trainer, range(3000))
    assert not any(found[:50])
    assert not any(found[2000:])
    on = [weight for weight in found[50:2000] if weight]
    assert len(on) / 1950 == pytest.approx(0.3, abs=0.04)
    assert set(on) == {0.4}


def test_there_is_no_penalty_without_a_weight(make_trainer):
    trainer = make_trainer({"jacobian": {"weight": 0.0, "probability": 1.0}, "schedule": {"pretrain_steps": 0}})
    assert not any(penalties(trainer, range(50)))


def test_pretraining_is_the_truncated_network_on_clean_images(make_trainer, monkeypatch):
    trainer = make_trainer({"schedule": {"pretrain_steps": 2, "pretrain_layers": 5, "max_steps": 3}})
    model, objective = trainer.model, trainer.step_module.objective
    calls = []
    truncated, losses = model.truncated, type(objective).__call__

    def recording_truncated(x, **options):
        calls.append(("truncated", x.clone(), options["layers"]))
        return truncated(x, **options)

    def recording_losses(self, *arguments):
        calls.append(("objective",))
        return losses(self, *arguments)

    monkeypatch.setattr(model, "truncated", recording_truncated)
    monkeypatch.setattr(type(objective), "__call__", recording_losses)
    trainer.fit()
    assert [call[0] for call in calls] == ["truncated", "truncated", "objective"]
    assert {call[2] for call in calls[:2]} == {5}
    known = trainer.data.train.pixels01().flatten(1)
    for _, images, _ in calls[:2]:
        assert all((known == image.flatten()).all(1).any() for image in images)


def test_a_schedule_of_steps_has_that_length_whatever_the_epochs(make_trainer):
    trainer = make_trainer({"schedule": {"steps": 7, "max_steps": None}})
    assert (trainer.total, trainer.schedule_steps) == (7, 7)
