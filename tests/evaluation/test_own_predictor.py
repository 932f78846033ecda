"""A user's own predictor goes through every suite."""

import inspect
import json
from itertools import product

import numpy as np
import polars as pl
import pytest
import torch
from pyautoattack import AutoAttack
from torch import nn

from robustdeq.cli.main import main
from robustdeq.evaluation import Store, evaluate
from robustdeq.evaluation.analysis import metrics
from robustdeq.evaluation.evaluate import load_images as checked_load_images
from robustdeq.evaluation.suites.read import read_suite
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.evaluation.suites.suite import Context
from robustdeq.threat import Linf
from tests.evaluation.predictors import EPS, images, plain_function, small_deq

OWN = "{attacks: [{name: mine, attack: pgd, options: {steps: 3, step_size: 0.02}}]}"


@pytest.mark.parametrize("suite", ["quick", "grid", "transfer", "own"])
def test_a_function_through_the_short_suites(tmp_path, suite):
    if suite == "own":
        (tmp_path / "own.yaml").write_text(OWN)
        suite = str(tmp_path / "own.yaml")
    x, y = images(6)
    verdict = evaluate(plain_function(), (x.float(), y), suite, tmp_path / "out", threat=Linf(EPS))
    assert verdict.complete
    assert verdict.union.value <= min(share.value for share in verdict.attacks.values())
    assert any("no dynamics" in note for note in verdict.notes)
    assert verdict.store.rows().collect()["state"].unique().to_list() == ["final"]


def test_labels_that_a_predictor_does_not_know_are_refused_before_anything_is_written(tmp_path):
    x, y = images(6)
    for labels, message in (
        (y + 12 - y.max(), "labels up to 12, the predictor tells 10 classes apart"),
        (y - 10, "labels are whole numbers from 0 on"),
        (y.float(), "labels are whole numbers from 0 on"),
        (nn.functional.one_hot(y, 10), r"one for each image; got torch.int64 of shape \[6, 10\]"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate(plain_function(), (x.float(), labels), "quick", tmp_path / "out", threat=Linf(EPS))
    assert not (tmp_path / "out").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "suite"),
    [
        *product(["linear_function", "small_deq"], ["quick", "grid", "transfer", "autoattack", "paper", "audit"]),
        ("small_deq", "table4"),
        ("small_deq", "settings"),  # of a predictor with dynamics alone
    ],
)
def test_every_suite_on_the_command_line(tmp_path, suite, function, capsys):
    # of the function some images survive to FAB and Square; a DEQ's break early here, at a large radius, to save time
    # (on one that survives they work in test_digits.py)
    eps = 0.085 if function == "linear_function" else 0.5
    words = [f"--suite={suite}", f"--out={tmp_path}", "--limit=3", "--device=cpu", f"--eps={eps}"]
    assert main(["evaluate", f"tests.evaluation.predictors:{function}", *words]) == 0
    assert "union" in capsys.readouterr().out
    store = Store(tmp_path)
    assert all(store.complete(name) for name in store.attacks)
    if suite in ("autoattack", "paper"):
        (aa,) = metrics.aa_accuracy(store).values()
        assert aa.value <= metrics.clean_accuracy(store).value
    if eps < 0.5 and suite in ("autoattack", "paper", "audit"):  # all of APGD, FAB and Square had their turn
        (name,) = [n for n in store.attacks if n in ("aa", "aa-ready", "square-survivors")]
        left = store.rows(name).filter(pl.col("deployed") & ~pl.col("success")).collect()
        assert 0 < left.height <= (3 if name == "square-survivors" else 2)
        assert left["queries"].min() > (5000 if name == "square-survivors" else 6000)
    if suite == "paper" and function == "small_deq":
        resolved = json.loads((tmp_path / "manifest.json").read_text())["attacks"]["aa-strongest"]["resolved"]
        assert resolved["attack_of_grid"] == metrics.strongest(store).attack
        assert store.rows("pgd-ready").filter(pl.col("deviation").is_not_null()).collect().height == 3 * 3 * 2
        assert set(store.manifest.predictors) == {"deployed", "entropy-sign"}
    if suite == "settings":
        assert metrics.by_setting(store).select("every", "steps").rows() == [
            (2, 10), *((t, r) for t, r in product((1, 2), (1, 5, 10, 20)) if (t, r) != (2, 10))
        ]  # fmt: skip


@pytest.mark.long
def test_autoattack_agrees_with_pyautoattack_called_directly(tmp_path):
    x, y = images(200)
    x = x.float()
    deq = small_deq().float()
    model = nn.Sequential(deq.encoder, nn.Tanh(), deq.head)  # thousands of passes, and nothing to solve
    verdict = evaluate(lambda z: model(z), (x, y), "autoattack", tmp_path / "out", threat=Linf(0.03), batch_size=200)
    reference = AutoAttack(model, norm="Linf", eps=0.03, version="standard", device="cpu", seed=0)
    adversarial, _ = reference.run_standard_evaluation(x, y, batch_size=200)
    with torch.no_grad():
        theirs = int((model(adversarial).argmax(1) == y).sum())
    ours = round(verdict.aa["aa"].value * 200)
    assert 20 < ours < 180
    assert abs(ours - theirs) <= 2


def test_pgd_of_an_own_suite_takes_steps_of_a_quarter_of_its_eps(tmp_path):
    file = tmp_path / "suite.yaml"
    file.write_text(
        "attacks: [{name: usual, attack: pgd}, {name: small, attack: pgd, eps: 4/255},"
        " {name: own, attack: pgd, options: {steps: 3, step_size: 1/255}}, {name: other, attack: apgd}]"
    )
    specs = {spec.name: spec for spec in read_suite(file, Context(Subject(small_deq()), Linf(0.2))).specs}
    assert specs["usual"].options == {"steps": 10, "step_size": 0.2 / 4}
    assert specs["small"].options == {"steps": 10, "step_size": 1 / 255}
    assert specs["own"].options == {"steps": 3, "step_size": 1 / 255}
    assert specs["other"].options == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (([[1.0]], [1]), "two tensors.*got list and list"),
        ([1, 2, 3], "two tensors.*got list"),
        (np.zeros(3), "two tensors.*got ndarray"),
    ],
)
def test_data_of_another_kind_are_refused_with_what_is_expected(data, message):
    load_images = inspect.unwrap(checked_load_images)  # in tests annotations are checked before
    with pytest.raises(TypeError, match=message):
        load_images(data, None, None, {})


def test_labels_of_any_whole_type_are_taken_and_are_the_same_labels(tmp_path):
    x, y = images(4)
    for labels in (y.int(), y, y.to(torch.uint8)):
        verdict = evaluate(small_deq(), (x, labels), out=tmp_path / "store", threat=Linf(EPS))
    assert verdict.complete


def test_a_predictor_that_returns_something_else_is_told_what_is_expected(tmp_path):
    model = small_deq()
    with pytest.raises(ValueError, match=r"returns logits, \(images, classes\): for 4 images this one gave a tuple"):
        evaluate(lambda x: (model(x), None), images(4), out=tmp_path, threat=Linf(EPS))


def test_a_predictor_that_changes_its_images_is_refused_and_the_images_are_as_they_were(tmp_path):
    model, (x, y) = small_deq(), images(6)
    before = x.clone()
    with pytest.raises(ValueError, match=r"changes its images in place: let it begin with x = x\.clone\(\)"):
        evaluate(lambda x: model(x.sub_(0.5).mul_(2)), (x, y), out=tmp_path, threat=Linf(EPS))
    assert torch.equal(x, before)


def test_attacks_on_survivors_of_each_other_run_one_after_the_other(tmp_path):
    line = "- {name: %s, attack: pgd, oracle: unrolled, oracle_options: {state: 2, steps: %d}, survivors: %s}"
    suite = tmp_path / "suite.yaml"
    suite.write_text("\n".join(["attacks:", line % ("a", 1, "deployed"), line % ("b", 2, "deployed")]))
    verdict = evaluate(small_deq(), images(6), suite, tmp_path / "s", threat=Linf(0.1))  # both would fit into a batch
    assert verdict.complete
    suite.write_text("\n".join(["attacks:", line % ("a", 1, "bas")]))
    with pytest.raises(ValueError, match="attack a: survivors must be deployed or base, got 'bas'"):
        evaluate(small_deq(), images(6), suite, tmp_path / "t", threat=Linf(0.1))
