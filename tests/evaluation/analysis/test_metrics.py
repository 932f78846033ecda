"""Metrics of stores whose content is written by hand."""

from dataclasses import replace

import polars as pl
import pytest

from robustdeq.evaluation import Store
from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.analysis import paired as pairing
from robustdeq.evaluation.run.progress import Bounds, Interval
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.store.schema import ATTACK_SCHEMA, CLEAN_SCHEMA
from robustdeq.threat import Linf
from tests.evaluation.manifests import data, manifest, record

EPS = 0.05

# image        0  1  2  3  4  5
CLEAN = "111110"
ATTACKS = {
    "pgd-i1-K1-l0.5": "101101",  # an attack may put a misclassified image right
    "pgd-i1-K2-l0.5": "011100",
    "pgd-i2-K1-l1": "110110",
    "aa-ready": "001100",
}
OPTIONS = {
    "pgd-i1-K1-l0.5": {"state": 1, "steps": 1, "damping": 0.5},
    "pgd-i1-K2-l0.5": {"state": 1, "steps": 2, "damping": 0.5},
    "pgd-i2-K1-l1": {"state": 2, "steps": 1, "damping": 1.0},
    "aa-ready": {},
}
ENTROPY = {"clean": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "pgd-i1-K1-l0.5": [0.2, 0.1, 0.3, 0.9, 0.6, 0.4]}


def _of_a_source(store, attack):
    return {"store": str(store), "attack": attack, "hash": attack, "model": "model"}


def write(folder, attacks=ATTACKS, *, shards=(0, 1), union=False, sha="same", stored=(), changes=()):
    """A store of six images in two shards of three, with two states; the second is deployed."""
    store = Store(folder)
    records = []
    for name in attacks:
        kind = "autoattack" if name.startswith("aa") else "pgd"
        usual = {"hash": name, "attack": kind, "group": kind if kind == "autoattack" else "grid"}
        if name in stored:
            options = _of_a_source(stored[name], name.split(".", 2)[2])
            usual |= {"attack": "stored", "oracle": "none", "group": "transfer", "options": options}
        changed = dict(changes).get(name, {})
        records.append(record(name, **{**usual, "oracle_options": OPTIONS.get(name, {}), **changed}))
    described = data(6, sha256=sha)
    store.write_manifest(manifest(records, union=union, shard_size=3, data=described, threat=Linf(EPS)))
    for shard in (0, 1):
        store.write(None, shard, rows(CLEAN, shard, "clean").select(*CLEAN_SCHEMA))
    for name, correct in attacks.items():
        for shard in shards:
            tried = correct[: dict(changes).get(name, {}).get("limit")]
            store.write(name, shard, rows(tried, shard, name).select(*ATTACK_SCHEMA))
    return store


def rows(correct, shard, name):
    images = range(3 * shard, min(3 * shard + 3, len(correct)))
    count = len(images)
    clean = {"1": [i == 0 for i in images], "2": [CLEAN[i] == "1" for i in images]}
    frames = []
    for state in ("1", "2"):
        right = [correct[i] == "1" if state == "2" else i == 0 for i in images]
        entropy = ENTROPY.get(name, [0.0] * 6)
        frames.append(
            pl.DataFrame(
                {
                    "image": list(images),
                    "label": [4] * count,
                    "predictor": ["deployed"] * count,
                    "state": [state] * count,
                    "deployed": [state == "2"] * count,
                    "prediction": [4 if r else 7 for r in right],
                    "clean_prediction": [4 if r else 7 for r in clean[state]],
                    "margin": [0.0] * count,
                    "entropy": [entropy[i] for i in images],
                    "loss": [0.0] * count,
                    "correct": right,
                    "success": [not r for r in right],
                    "queries": [1] * count,
                    "deviation": [None] * count,
                    "residual": [None] * count,
                },
                schema_overrides={"deviation": pl.Float32, "residual": pl.Float32},
            )
        )
    return pl.concat(frames)


@pytest.fixture
def store(tmp_path):
    return write(tmp_path / "store")


def test_accuracy_is_the_share_of_images_an_attack_leaves_correct(store):
    assert metrics.clean_accuracy(store).value == 5 / 6
    assert metrics.clean_accuracy(store, state="1").value == 1 / 6
    table = metrics.accuracy(store)
    assert table.select("attack", "state", "images", "complete").rows() == [(name, "2", 6, True) for name in ATTACKS]
    assert table["accuracy"].to_list() == pytest.approx([4 / 6, 3 / 6, 4 / 6, 2 / 6])
    assert metrics.accuracy(store, ["aa-ready"], state=None)["accuracy"].to_list() == pytest.approx([1 / 6, 2 / 6])


def test_minimum_union_and_aa_of_a_small_store(store):
    grid = [name for name in ATTACKS if name.startswith("pgd")]
    assert metrics.paper_minimum(store).value == 3 / 6
    assert metrics.union_accuracy(store, grid).value == 1 / 6  # image 3 alone survives all three; 5 was wrong before
    assert metrics.union_accuracy(store).value == 1 / 6
    assert {name: share.value for name, share in metrics.aa_accuracy(store).items()} == {"aa-ready": 2 / 6}
    assert metrics.paper_minimum(store, state="1").value == 1 / 6


@pytest.mark.parametrize("changes", [{"eps": 0.4}, {"eps": 0.0501}, {"norm": "L2"}, {"group": "sanity"}])
def test_only_attacks_inside_the_threat_count_for_the_union(tmp_path, changes):
    attacks = {"pgd-i1-K1-l0.5": "101101", "mine": "000000"}
    outside = write(tmp_path / "outside", attacks, changes={"mine": changes})
    assert metrics.judged_attacks(outside) == ["pgd-i1-K1-l0.5"]
    assert metrics.union_accuracy(outside).value == 3 / 6
    inside = write(tmp_path / "inside", attacks, changes={"mine": {"eps": EPS * (1 + 1e-12)}})
    assert metrics.union_accuracy(inside).value == 0

    specs = [AttackSpec(name="mine", attack="pgd", oracle="ready", **{"norm": "Linf", "eps": EPS, **changes})]
    bounds = Bounds(outside, specs, Linf(EPS), 6, 3)
    for shard in (0, 1):
        bounds.include(None, shard)
        bounds.include("mine", shard)
    assert bounds.now() == Interval(5 / 6, 5 / 6)


def test_an_attack_with_a_limit_is_judged_on_the_images_it_was_tried_on(tmp_path):
    attacks = {"pgd-i1-K1-l0.5": "111101", "aa-ready": "01"}
    limited = write(tmp_path / "limited", attacks, changes={"aa-ready": {"limit": 2}})
    (aa,) = metrics.aa_accuracy(limited).values()
    assert (aa.value, aa.images) == (1 / 2, 2)
    minimum = metrics.paper_minimum(limited, list(attacks))
    assert (minimum.value, minimum.images) == (1 / 2, 2)
    assert metrics.union_accuracy(limited).value == 3 / 6  # what it was not tried on it did not break
    with pytest.raises(ValueError, match="limit is a number of images, at least 1"):
        AttackSpec(name="none", attack="pgd", oracle="ready", eps=EPS, limit=0)


def test_autoattack_at_another_radius_is_not_reported_as_aa(tmp_path):
    far = write(tmp_path / "far", {"aa-ready": "000000"}, changes={"aa-ready": {"eps": 0.4}})
    assert metrics.aa_accuracy(far) == {}


def test_the_strongest_oracle_leaves_the_lowest_accuracy(store):
    found = metrics.strongest(store)
    assert (found.attack, found.state, found.steps, found.damping) == ("pgd-i1-K2-l0.5", 1, 2, 0.5)
    table = metrics.strongest_by_state(store)
    assert table.select("damping", "i", "K").rows() == [(0.5, 1, 2), (1.0, 2, 1)]


def test_the_strongest_oracles_of_the_grid_come_first(store):
    assert metrics.strongest_oracles(store, 2) == [(1, 2, 0.5), (1, 1, 0.5)]
    assert metrics.strongest_oracles(store, 9)[2:] == [(2, 1, 1.0)]


def test_entropy_change_gives_share_and_mean_difference(store):
    (row,) = metrics.entropy_change(store, ["pgd-i1-K1-l0.5"]).iter_rows(named=True)
    assert row["share"] == pytest.approx(3 / 6)  # images 0, 3 and 4; equal is not lower
    assert row["difference"] == pytest.approx((0.1 - 0.1 + 0.0 + 0.5 + 0.1 - 0.2) / 6, abs=1e-7)
    assert metrics.entropy_change(store)["attack"].to_list() == [n for n in ATTACKS if n.startswith("pgd")]


def test_entropies_that_are_not_finite_are_left_out(tmp_path, monkeypatch):
    attacked = [0.2, float("nan"), 0.3, 0.9, float("inf"), 0.4]
    monkeypatch.setitem(ENTROPY, "pgd-i1-K1-l0.5", attacked)
    store = write(tmp_path / "store", {"pgd-i1-K1-l0.5": "111111"})
    (row,) = metrics.entropy_change(store).iter_rows(named=True)
    assert (row["share"], row["images"]) == (2 / 4, 4)
    assert row["difference"] == pytest.approx((0.1 + 0.0 + 0.5 - 0.2) / 4, abs=1e-7)


def test_paired_differences_need_the_same_images(store, tmp_path):
    better = write(tmp_path / "better", {"pgd-i1-K1-l0.5": "111110"})
    found = pairing.difference(store, better)
    assert found.value == pytest.approx(5 / 6 - 3 / 6)  # clean and the one attack that both have
    assert found.low <= found.value <= found.high
    with pytest.raises(ValueError, match="different images"):
        pairing.difference(store, write(tmp_path / "other", sha="other"))


def test_paired_differences_are_over_equal_attacks_where_all_of_them_were_tried(store, tmp_path):
    changes = {"aa-ready": {"hash": "smaller budget"}}
    other = write(tmp_path / "other", changes=changes)
    assert pairing.shared_attacks(store, other, metrics.judged_attacks(store)) == [
        n for n in ATTACKS if n != "aa-ready"
    ]
    limited = [write(tmp_path / name, changes={"aa-ready": {"limit": 3}}) for name in ("a", "b")]
    found = pairing.difference(*limited)
    assert (found.value, found.images) == (0, 3)


def test_methods_with_several_trainings_are_compared_over_the_attacks_that_all_have(store, tmp_path):
    fewer = {"pgd-i1-K1-l0.5": "111110"}
    better = [write(tmp_path / name, fewer) for name in ("b0", "b1")]
    found = pairing.difference_over_seeds([store, store], better)
    assert found.value == pytest.approx(5 / 6 - 3 / 6)
    assert found.low <= found.value <= found.high
    other = write(tmp_path / "other", sha="other")
    with pytest.raises(ValueError, match="different images"):
        pairing.difference_over_seeds([store, store], [better[0], other])


def test_the_transfer_matrix_takes_minima_over_the_grids(tmp_path):
    a = write(tmp_path / "a")
    grid = {"from.a.pgd-i1-K1-l0.5": "110000", "from.a.pgd-i2-K1-l1": "111000"}
    others = {"from.a.aa-ready": "000000", "from.a.from.c.pgd-i2-K1-l1": "000000"}  # on the diagonal is the grid alone
    seen = grid | others
    stored = dict.fromkeys(seen, (tmp_path / "a").resolve())
    b = write(tmp_path / "b", {"pgd-i1-K1-l0.5": "111111", **seen}, stored=stored)
    table = metrics.transfer_matrix({"A": a, "B": b})
    assert table.select("target", "source", "attacks").rows() == [("A", "A", 3), ("B", "A", 2), ("B", "B", 1)]
    assert table["accuracy"].to_list() == pytest.approx([3 / 6, 2 / 6, 1.0])


def test_stores_that_move_together_stay_each_other_s_sources(tmp_path):
    write(tmp_path / "here" / "a")
    seen = {"from.a.pgd-i1-K1-l0.5": "110000"}
    write(tmp_path / "here" / "b", {"pgd-i1-K1-l0.5": "111111", **seen}, stored=dict.fromkeys(seen, "../a"))
    (tmp_path / "here").rename(tmp_path / "there")
    table = metrics.transfer_matrix({name: Store(tmp_path / "there" / name) for name in "ab"})
    assert table.select("target", "source").rows() == [("a", "a"), ("b", "a"), ("b", "b")]


def test_of_a_source_with_aware_attacks_only_these_are_transferred(tmp_path):
    a = write(tmp_path / "a", changes={"pgd-i2-K1-l1": {"group": "grid-aware"}})
    seen = {"from.a.pgd-i1-K1-l0.5": "110000", "from.a.pgd-i2-K1-l1": "111000"}
    b = write(tmp_path / "b", {"pgd-i1-K1-l0.5": "111111", **seen}, stored=dict.fromkeys(seen, "../a"))
    assert metrics.shown_from(a, b) == ["from.a.pgd-i2-K1-l1"]
    assert metrics.shown_from(a, a) == metrics.grid_attacks(a)
    assert metrics.shown_from(b, a) == []
    (own,) = metrics.transfer_matrix({"a": a, "b": b}).filter(target="b", source="a")["accuracy"]
    assert own == 3 / 6


def test_images_of_an_earlier_version_of_a_source_are_not_counted_as_its(tmp_path):
    a = write(tmp_path / "a")
    seen = {"from.a.pgd-i1-K1-l0.5": "110000", "from.a.pgd-i2-K1-l1": "111000"}
    b = write(tmp_path / "b", {"pgd-i1-K1-l0.5": "111111", **seen}, stored=dict.fromkeys(seen, "../a"))
    assert metrics.shown_from(a, b) == [*seen]
    other_attack = write(tmp_path / "a", changes={"pgd-i2-K1-l1": {"hash": "longer"}})
    assert metrics.shown_from(other_attack, b) == ["from.a.pgd-i1-K1-l0.5"]
    a = Store(tmp_path / "a")
    a.write_manifest(replace(a.manifest, model=replace(a.manifest.model, hash="trained again")))
    assert metrics.shown_from(a, b) == []


def test_incomplete_stores_give_no_numbers(tmp_path):
    half = write(tmp_path / "half", shards=(0,))
    assert not half.complete("aa-ready")
    assert metrics.aa_accuracy(half) == {}
    for number in (metrics.paper_minimum, metrics.strongest):
        with pytest.raises(metrics.IncompleteError, match=r"lacks results of 3 of 3 attacks"):
            number(half)
    with pytest.raises(metrics.IncompleteError, match="holds no such attacks"):
        metrics.paper_minimum(write(tmp_path / "none", {}))
    union = write(tmp_path / "union", union=True)
    assert metrics.union_accuracy(union).value == 1 / 6
    assert metrics.aa_accuracy(union) == {}
    for other in ({"predictor": "base"}, {"state": "1"}):
        with pytest.raises(metrics.IncompleteError, match="of other predictors and states is not known"):
            metrics.union_accuracy(union, **other)
        with pytest.raises(metrics.IncompleteError, match="of other predictors and states is not known"):
            pairing.difference(union, union, **other)
    with pytest.raises(ValueError, match="has no attack 'pgd'; it has pgd-i1"):
        half.rows("pgd")
    with pytest.raises(ValueError, match="not a store of results"):
        _ = Store(tmp_path / "nowhere").manifest
