"""The audit tells robust, broken and masked predictors apart."""

import json

import pytest
import torch

from robustdeq.defences import EarlyState, EntropyReduction
from robustdeq.evaluation import evaluate
from robustdeq.evaluation.audit.cost import seconds_per_image
from robustdeq.evaluation.audit.probes import Views, probe
from robustdeq.evaluation.run.batch import predictions
from robustdeq.evaluation.suites.audit import Budget, audit_suite
from robustdeq.evaluation.suites.opaque import Opaque
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.threat import Linf
from tests.evaluation.predictors import images, linear_function, small_deq

COUNT = 200
MODEL = linear_function()


@pytest.fixture
def audit(tmp_path):
    """A short audit at one radius for all."""
    budget = Budget(steps=11, search=6, restarts=2, rounds=2, square={"n_queries": 60})

    def audited(predictor, labels=10, **options):
        options = {"threat": Linf(0.02), "batch_size": COUNT, "shard_size": COUNT} | options
        x, y = images(COUNT)
        return evaluate(
            predictor, (x, y * labels // 10), lambda c: audit_suite(c, budget), tmp_path / "store", **options
        )

    return audited


def robust(x):
    return MODEL(x)


def broken(x):
    """Right on digits, whose first column is empty; but whatever stands there decides."""
    logits = MODEL(x)
    shift = torch.zeros_like(logits)
    shift[:, :8] = 2000 * x[:, 0, :, 0]
    return logits + shift


def masked(x):
    """Blind to small changes, and without a gradient."""
    return MODEL((4 * x).round() / 4)


def flags(verdict):
    return {flag.name for flag in verdict.audit.raised}


def test_the_verdict_on_a_robust_model_is_stands(audit):
    seen = []
    verdict = audit(robust, report=seen.append)
    assert (seen[-1].doing, seen[-1].remaining) == (f"probing the predictor, image 101 of {COUNT}", None)
    assert verdict.audit.verdict == "stands"
    assert not flags(verdict)
    assert verdict.union.value > 0.4
    assert verdict.attacks["large-eps"].value == 0
    assert verdict.union.value > 0  # images broken at the large radius do not count


def test_the_verdict_on_a_broken_model_is_broken(audit):
    verdict = audit(broken)
    assert verdict.clean.value > 0.6
    assert verdict.audit.verdict == "broken"
    assert verdict.union.value == 0


def test_the_verdict_on_a_model_without_gradients_is_masked_whatever_its_accuracy(audit):
    verdict = audit(masked)
    assert verdict.union.value > 0.4
    assert verdict.audit.verdict == "masked"
    assert {"vanishing-gradients", "large-eps"} <= flags(verdict)


@pytest.mark.long
def test_a_defence_stands_beside_its_static_base_and_the_audit_is_kept(audit):
    defended = EarlyState(EntropyReduction(small_deq(), every=1, steps=2, radius=0.02, step_size=0.01), state=3)
    verdict = audit(defended)
    found = verdict.audit
    assert found.base_union is not None
    assert {"bpda", "exact", "exact-constant", "confident", "base-apgd-ce", "base-exact"} <= set(found.attacks)
    assert found.attacks.keys() == found.base_attacks.keys()
    assert found.probes.cost > 2 * found.probes.base_cost > 0
    assert "static base" in verdict.table()
    assert found.gain.value == pytest.approx(found.union.value - found.base_union.value)
    assert f"{found.gain}" in str(verdict)
    assert found.verdict in verdict.table()
    kept = json.loads((verdict.folder / "audit.json").read_text())
    assert kept["verdict"] == found.verdict
    assert kept["union"]["value"] == verdict.union.value


def test_the_audit_refuses_union(audit):
    with pytest.raises(ValueError, match="leave --union away"):
        audit(robust, union=True)


def test_probes_find_randomness_batch_dependence_and_vanishing_gradients():
    x, y = images(8)
    model = small_deq()

    def look(predictor):
        return probe(Subject(predictor), Views(Opaque(predictor), None), x, y, Linf(0.02))

    honest = look(model)
    assert (honest.random, honest.batch, honest.vanishing) == (0, 0, 0)
    noise = torch.Generator().manual_seed(0)
    random = look(lambda x: model(x) + torch.randn(len(x), 10, generator=noise, dtype=x.dtype))
    assert random.random == 1
    coupled = look(lambda x: model(x).roll(len(x) - 1, dims=1))  # whose labels depend on how many there are
    assert coupled.batch == 1
    assert coupled.random == 0
    assert look(lambda x: model(x.detach())).vanishing == 1
    assert look(masked).vanishing == 1


def test_every_image_is_probed_so_that_more_images_decide_a_flag():
    x, y = images(120)
    model, before = small_deq(), torch.zeros(120, dtype=torch.int64)

    def predictor(images):  # without a gradient on one of the last
        last = (images == x[110]).flatten(1).all(1, keepdim=True)
        return torch.where(last, model(images.detach()), model(images))

    found = probe(Subject(predictor), Views(Opaque(predictor), Opaque(predictor)), x, y, Linf(0.02), before)
    assert (found.images, found.sloped, found.vanishing, found.random) == (120, 119, 1 / 120, 0)
    assert found.drift == float((model(x).argmax(1) != 0).double().mean())


def test_images_without_a_prediction_hide_no_randomness_and_are_no_drift():
    x, y = images(8)
    model, noise = small_deq(), torch.Generator().manual_seed(0)

    def refuses(x):
        return model(x).index_fill(0, torch.tensor([2]), torch.nan) if len(x) == 8 else model(x)

    def random(x):  # too little noise to change a prediction
        return refuses(x) + 0.05 * torch.randn(len(x), 10, generator=noise, dtype=x.dtype)

    before = predictions(refuses(x))
    honest, noisy = (probe(Subject(p), Views(Opaque(p), None), x, y, Linf(0.02), before) for p in (refuses, random))
    assert (honest.random, honest.drift, honest.batch) == (0, 0, 1 / 8)
    assert noisy.random == 7 / 8


def test_transferred_images_count_as_black_box_attacks(audit, tmp_path):
    """Shown to a predictor without gradients, they raise the flag instead of hiding it."""
    options = {"threat": Linf(0.3), "batch_size": COUNT, "shard_size": COUNT}
    evaluate(robust, images(COUNT), "quick", tmp_path / "source", keep_images=True, **options)
    verdict = audit(masked, threat=Linf(0.3), sources=[tmp_path / "source"])
    share = next(flag.value for flag in verdict.audit.flags if flag.name == "black-box-beats-white-box")
    own = [name for name in verdict.attacks if name.startswith("pgd-")]
    assert verdict.attacks["from.source.pgd-direct"].value < min(verdict.attacks[name].value for name in own)
    assert share > 0


def test_two_classes_are_audited_without_the_dlr_loss(audit):
    verdict = audit(lambda x: torch.stack([MODEL(x)[:, :5].logsumexp(1), MODEL(x)[:, 5:].logsumexp(1)], 1), labels=2)
    assert verdict.complete
    assert "apgd-ce" in verdict.attacks
    assert "apgd-dlr" not in verdict.attacks


def test_a_user_s_suite_named_audit_is_not_judged_as_the_audit(tmp_path):
    (tmp_path / "audit.yaml").write_text("attacks: [{name: mine, attack: pgd}]")
    verdict = evaluate(robust, images(2), tmp_path / "audit.yaml", tmp_path / "store", threat=Linf(0.02))
    assert verdict.audit is None


class Small(torch.nn.Module):
    """A predictor that runs out of memory on more than three images."""

    def __init__(self):
        super().__init__()
        self.model = small_deq()

    def forward(self, x):
        if len(x) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.model(x)


def test_probes_halve_batches_that_do_not_fit_into_memory():
    x, y = images(8)
    whole, small = small_deq(), Small()
    found, expected = (probe(Subject(p), Views(Opaque(p), Opaque(p)), x, y, Linf(0.02)) for p in (small, whole.forward))
    assert found == expected
    assert seconds_per_image(Subject(small), x) > 0
    with pytest.raises(torch.OutOfMemoryError):
        small(x)
