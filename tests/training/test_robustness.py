"""Adversarial training makes a model robust, on real images."""

import pytest

import robustdeq as rd
from robustdeq.recipes import merge, parse_config, read_recipe
from robustdeq.threat import Linf
from robustdeq.training.trainer import Trainer
from robustdeq.training.validation import correct_counts, pgd_attack

RECIPE = "digits-nano-trades-random"
EPS = 0.15


@pytest.mark.long
def test_trades_with_random_states_keeps_twenty_points_more_than_a_standard_twin(tmp_path):
    accuracy = {}
    for name, changes in {"robust": {}, "twin": {"objective": {"kind": "standard"}}}.items():
        config = parse_config(merge(read_recipe(RECIPE), changes))
        trainer = Trainer(config, tmp_path / name, device="cpu")
        trainer.fit()
        # last, not best: by PGD accuracy the best of a model that is not robust is one that has learnt little yet
        model, test = rd.load(tmp_path / name / "last"), trainer.data.test
        attack = pgd_attack(model, Linf(EPS), steps=10, step_size=EPS / 4, seed=0)
        counts = correct_counts(model, test.pixels01(), test.labels, [attack], batch_size=len(test))
        accuracy[name] = [count / len(test) for count in counts]
    (clean, robust), (twin_clean, twin_robust) = accuracy["robust"], accuracy["twin"]
    assert twin_clean > 0.9
    assert twin_robust < 0.2
    assert robust >= twin_robust + 0.2
    assert clean > 0.85
