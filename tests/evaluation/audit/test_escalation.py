"""What survives is attacked again, harder, until nothing breaks; a kill or a budget loses nothing."""

from dataclasses import replace

import polars as pl
import pytest

from robustdeq.defences import EarlyState, EntropyReduction
from robustdeq.evaluation import Store, evaluate
from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.audit.escalation import PREFIX
from robustdeq.evaluation.run.runner import Runner
from robustdeq.evaluation.suites.audit import Budget, audit_suite
from robustdeq.threat import Linf
from tests.evaluation.predictors import images, linear_function, small_deq

COUNT, EPS = 40, 0.06
WEAK = Budget(steps=11, search=2, restarts=2, rounds=3, square={"n_queries": 10})
MODEL = linear_function()


def audited(out, predictor=MODEL, budget=WEAK, **options):
    options = {"threat": Linf(EPS), "batch_size": 15, "shard_size": 25} | options
    return evaluate(predictor, images(COUNT), lambda c: audit_suite(c, budget), out, **options)


def defended(count=3):
    return EarlyState(EntropyReduction(small_deq(), every=1, steps=2, radius=EPS, step_size=EPS / 4), state=count)


def attacked(store, name):
    """Positions of the images that an attack was run on."""
    return set(store.rows(name).collect()["image"])


@pytest.fixture(scope="module")
def verdict(tmp_path_factory):
    return audited(tmp_path_factory.mktemp("escalation") / "store")


def test_a_round_runs_on_what_the_attacks_with_gradients_have_left(verdict):
    store = verdict.store
    names = store.attacks
    left = [name for name in names if store.manifest.attacks[name].spec.survivors]
    assert {"apgd-targeted", "square-survivors"} <= set(left)
    assert any(name.startswith(f"{PREFIX}1-") for name in left)
    for name in left:
        before = [
            other
            for other in names[: names.index(name)]
            if not store.manifest.attacks[other].spec.black and other in metrics.judged_attacks(store)
        ]
        right = metrics.outcomes(store, before)[0].all(axis=1)
        assert attacked(store, name) == set(right.nonzero()[0])


def test_rounds_end_when_nothing_breaks(verdict):
    store = verdict.store
    rounds = sorted({name.split("-")[1] for name in store.attacks if name.startswith(PREFIX)})
    broke = [
        any(
            store.rows(name).filter("deployed", "success").collect().height
            for name in store.attacks
            if name.startswith(f"{PREFIX}{number}-")
        )
        for number in rounds
    ]
    assert rounds == [str(k) for k in range(1, len(rounds) + 1)]
    assert all(broke[:-1])
    assert len(rounds) == WEAK.rounds or not broke[-1]


def test_an_escalation_lowers_the_union_where_the_first_attacks_were_weak(verdict):
    first = [name for name in metrics.judged_attacks(verdict.store) if not name.startswith(PREFIX)]
    assert verdict.union.value < metrics.union_accuracy(verdict.store, first).value
    assert verdict.audit.union == verdict.union


def test_attacks_on_survivors_have_no_accuracy_on_all_images(verdict):
    survivors = verdict.audit.survivors
    assert survivors
    assert not survivors.keys() & verdict.attacks.keys()
    assert all(share.images == len(attacked(verdict.store, name)) for name, share in survivors.items())
    assert all(f"{name}, survivors" in verdict.table() for name in survivors)


def test_the_same_call_finds_everything_done(verdict, monkeypatch):
    monkeypatch.setattr(Runner, "_run", lambda self, bundle: pytest.fail(f"{bundle} is run again"))
    again = audited(verdict.folder)
    assert (again.complete, again.union, again.audit.verdict) == (True, verdict.union, verdict.audit.verdict)


def test_a_killed_escalation_resumes_and_ends_with_the_same_answers(verdict, tmp_path, monkeypatch):
    run = Runner._run

    def killed(self, bundle):
        if str(bundle[0].attack).startswith(PREFIX) and bundle[0].shard == 1:
            raise KeyboardInterrupt
        run(self, bundle)

    monkeypatch.setattr(Runner, "_run", killed)
    with pytest.raises(KeyboardInterrupt):
        audited(tmp_path / "store")
    monkeypatch.undo()
    again = audited(tmp_path / "store")
    assert again.store.attacks == verdict.store.attacks
    rows = [v.store.rows().select("attack", "image", "prediction").collect() for v in (again, verdict)]
    assert rows[0].sort(pl.all()).equals(rows[1].sort(pl.all()))


def test_a_budget_that_ends_within_the_escalation_leaves_a_judged_audit(tmp_path, monkeypatch):
    left = iter([None, 0.0])  # the attacks on all images have time, the first round has none
    monkeypatch.setattr("robustdeq.evaluation.run.progress.Deadline.left", lambda self: next(left))
    verdict = audited(tmp_path / "store")
    assert not verdict.complete
    assert verdict.audit is not None
    assert "escalation" in verdict.table()


@pytest.mark.long
def test_the_base_of_a_defence_is_escalated_too(tmp_path):
    verdict = audited(tmp_path / "store", defended(), replace(WEAK, rounds=1))
    specs = {name: record.spec for name, record in verdict.store.manifest.attacks.items()}
    first = [spec for name, spec in specs.items() if name.startswith(f"{PREFIX}1-")]
    assert [spec.survivors for spec in first] == ["deployed"] * 3 + ["base"]
    assert {"exact-dlr", "exact-targeted", "exact-restarts"} <= specs.keys()
    on_base = next(spec for spec in first if spec.on == "base")
    mine = [n for n in metrics.judged_attacks(verdict.store) if not n.startswith(PREFIX)]
    right = metrics.outcomes(verdict.store, mine, predictor="base")[0].all(axis=1)
    assert attacked(verdict.store, on_base.name) <= set(right.nonzero()[0])


def test_stores_of_earlier_versions_keep_the_hashes_of_their_attacks():
    from tests.evaluation.audit.test_old_stores import STORES

    records = Store(STORES / "trades-defended-sign").manifest.attacks
    assert all(record.hash == record.spec.hash for record in records.values())
    assert all("survivors" not in record.spec.identity() for record in records.values())
