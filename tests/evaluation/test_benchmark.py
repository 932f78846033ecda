"""One call or command to clean accuracy, AutoAttack, the union and flags."""

import json
import re
from dataclasses import replace

import pytest
import torch

import robustdeq as rd
from robustdeq.cli.main import main
from robustdeq.evaluation import Store, make_suite
from robustdeq.evaluation.run.estimate import passes
from robustdeq.evaluation.suites.build import build_attack, build_oracle
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.evaluation.suites.suite import Context
from tests.evaluation.predictors import EPS, images, linear_function, small_deq

CONTEXT = {"threat": rd.Linf(EPS), "classes": 10}


@pytest.mark.long
def test_one_call_gives_accuracies_flags_and_a_resumable_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = images(3)
    predictor, said = linear_function(), []
    result = rd.benchmark(predictor, (x.float(), y), n=2, threat=rd.Linf(EPS), say=said.append)
    assert re.match(r"\d+ attacks on 2 images take about .* \(measured on 2 of them\)", said[0])
    assert (result.images, result.data, result.threat) == (2, "tensors", rd.Linf(EPS))
    assert result.union.value <= result.autoattack.value <= result.clean.value
    assert result.union.low <= result.union.value <= result.union.high
    assert {"vanishing-gradients", "more-steps-hurt"} <= {flag.name for flag in result.audit.flags}
    assert result.folder.parts[:2] == ("runs", "benchmark")
    text = str(result)
    assert all(word in text for word in ("clean", "AutoAttack", "union of all attacks", "verdict", "results: runs"))
    store = Store(result.folder)
    assert [name for name in store.attacks if store.manifest.attacks[name].spec.is_standard_autoattack] == ["aa"]
    # the same call resumes: nothing is left to attack, and the numbers stay
    took, said = result.seconds, []
    again = rd.benchmark(predictor, (x.float(), y), n=2, threat=rd.Linf(EPS), say=said.append)
    assert not any("take about" in words for words in said)
    assert (again.union, again.autoattack, again.audit.flags) == (result.union, result.autoattack, result.audit.flags)
    assert again.seconds == took > 0


@pytest.mark.long
def test_the_command_gives_what_the_call_gives(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["tests.evaluation.predictors:linear_function", "--data", "digits", "--eps", str(EPS), "--limit", "2"]
    assert main(["benchmark", *words, "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert "take about" in err
    result = rd.benchmark(linear_function(), "digits", n=2, threat=rd.Linf(EPS), say=None, out=tmp_path / "own")
    mine = result.as_json()
    different = {"folder", "seconds", "name"}
    assert {k: v for k, v in told.items() if k not in different} == {k: mine[k] for k in mine if k not in different}
    assert told["threat"] == {"norm": "Linf", "eps": EPS}


def test_the_suite_is_the_audit_and_autoattack_through_the_defence():
    defended = rd.EntropyReduction(small_deq(), every=1, steps=1)
    for predictor, name in ((small_deq(), "aa-ready"), (defended, "aa-ready"), (linear_function(), "aa")):
        context = Context(Subject(predictor), **CONTEXT)
        suite = make_suite("benchmark", context)
        assert suite.audited
        assert [s.name for s in suite.specs[:-1]] == [s.name for s in make_suite("audit", context).specs]
        last = suite.specs[-1]
        assert (last.name, last.is_standard_autoattack) == (name, True)
        assert last.oracle_options.get("view") == ("aware" if predictor is defended else None)


def test_autoattack_is_left_out_with_a_note_where_it_is_not_defined():
    suite = make_suite("benchmark", Context(Subject(linear_function()), threat=rd.Linf(EPS), classes=3))
    assert not any(s.attack == "autoattack" for s in suite.specs)
    assert any("AutoAttack is left out" in note for note in suite.notes)


def test_the_passes_that_an_estimate_counts_are_those_that_an_attack_asks_for():
    x, y = images(2)
    subject = Subject(linear_function())
    for spec in make_suite("audit", Context(subject, **CONTEXT)).specs:
        small = {"pgd": {"steps": 7}, "apgd": {"n_iter": 6}, "square": {"n_queries": 9}}[spec.attack]
        spec = replace(spec, options={**spec.options, **small}, every_image=True)
        found = build_attack(spec, 0)(build_oracle(spec, subject), subject.pixels(x), y, every_image=True)
        extra = found.queries - sum(passes(spec).values())
        if spec.attack != "square":  # Square ends at its first success
            assert ((extra >= 0) & (extra <= 2 * spec.options.get("restarts", 1))).all(), spec.name
        assert (extra <= 2 * spec.options.get("restarts", 1)).all()


def test_mistakes_are_one_line_before_anything_is_measured(tmp_path):
    x, y = images(4)
    with pytest.raises(TypeError, match="threat is a ball"):
        rd.benchmark(linear_function(), (x, y), threat=0.03, out=tmp_path / "a")
    with pytest.raises(ValueError, match="the predictor tells 10 classes apart"):
        rd.benchmark(linear_function(), (x, y + 10), threat=rd.Linf(EPS), out=tmp_path / "b")
    with pytest.raises(ValueError, match="at least 1"):
        rd.benchmark(linear_function(), (x, y), n=0, threat=rd.Linf(EPS), out=tmp_path / "c")
    assert not list(tmp_path.iterdir())
    assert torch.is_grad_enabled()
