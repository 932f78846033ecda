"""Attacks as data."""

from dataclasses import replace

import pytest

from robustdeq.attacks import PGD
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.suites.attacks import grid
from robustdeq.evaluation.suites.build import build_attack, check_buildable
from robustdeq.evaluation.suites.read import make_suite
from robustdeq.evaluation.suites.subject import Subject
from robustdeq.evaluation.suites.suite import Context
from robustdeq.threat import Linf
from tests.evaluation.predictors import small_deq

SPEC = AttackSpec(name="mine", attack="pgd", options={"steps": 3, "step_size": 0.1}, eps=0.3, oracle="ready")


def test_the_hash_is_of_what_the_attack_does_and_not_of_its_name():
    assert len(SPEC.hash) == 12
    assert replace(SPEC, name="other", group="grid").hash == SPEC.hash
    others = [
        replace(SPEC, options={"steps": 4, "step_size": 0.1}),
        replace(SPEC, eps=0.31),
        replace(SPEC, norm="L2"),
        replace(SPEC, oracle="direct"),
        replace(SPEC, oracle_options={"view": "aware"}),
        replace(SPEC, on="base"),
        replace(SPEC, every_image=False),
        replace(SPEC, limit=10),
    ]
    assert len({spec.hash for spec in others} | {SPEC.hash}) == len(others) + 1


def test_an_attack_is_built_with_its_threat_options_and_a_seed_of_its_own():
    attack = build_attack(SPEC, seed=5)
    assert attack == PGD(Linf(0.3), steps=3, step_size=0.1, seed=SPEC.seed(5))
    assert len({SPEC.seed(5), SPEC.seed(6), replace(SPEC, name="other").seed(5)}) == 3


def test_what_is_stored_beside_does_not_make_another_attack():
    spec = AttackSpec(name="mine", attack="pgd", eps=0.1, oracle="ready")
    assert replace(spec, diagnostics=True, name="other", group="ready").hash == spec.hash
    assert replace(spec, eps=0.2).hash != spec.hash


def test_the_grid_of_eight_states_has_the_144_attacks_of_the_paper():
    specs = grid(Context(Subject(small_deq(states=8)), Linf(8 / 255)))
    assert len(specs) == len({spec.hash for spec in specs}) == 144
    named = {spec.name: spec for spec in specs}
    spec = named["pgd-i3-K5-l0.5"]
    assert spec.oracle_options == {"state": 3, "steps": 5, "damping": 0.5, "form": "paper", "aware": False}
    assert spec.options == {"steps": 10, "step_size": pytest.approx(2 / 255)}
    assert {(s.oracle_options["state"], s.oracle_options["steps"], s.oracle_options["damping"]) for s in specs} == {
        (i, k, d) for i in range(1, 9) for k in range(1, 10) for d in (0.5, 1.0)
    }


@pytest.mark.parametrize("name", ["aa", "AA", "aa-short", "AA_mine"])
def test_only_standard_budgets_may_be_called_aa(name):
    with pytest.raises(ValueError, match="standard budgets"):
        AttackSpec(name=name, attack="autoattack", options={"n_queries": 100}, eps=0.1, oracle="ready")
    with pytest.raises(ValueError, match="standard budgets"):
        AttackSpec(name=name, attack="pgd", eps=0.1, oracle="ready")
    assert AttackSpec(name=name, attack="autoattack", eps=0.1, oracle="ready").is_standard_autoattack
    AttackSpec(name="autoattack-short", attack="autoattack", options={"n_queries": 100}, eps=0.1, oracle="ready")


def test_a_wrong_option_is_an_error_that_names_the_attack():
    with pytest.raises(ValueError, match=r"attack mine: pgd cannot be made with .*stepps"):
        build_attack(replace(SPEC, options={"stepps": 3}), seed=0)


def context(subject=None, **options):
    return Context(Subject(small_deq() if subject is None else subject), Linf(0.1), **options)


def test_a_user_s_suite_is_read_strictly(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "include: quick\n"
        "attacks:\n"
        "  - {name: long, attack: pgd, options: {steps: 50, step_size: 0.01}, eps: 8/255}\n"
        "  - {name: i2, attack: apgd, oracle: unrolled, oracle_options: {state: 2, values: deployed}}\n"
    )
    suite = make_suite(file, context())
    assert suite.name == "mine"
    ready, long, i2 = suite.specs
    assert (ready.name, long.name, i2.name) == ("pgd-ready", "long", "i2")
    assert long.eps == pytest.approx(8 / 255)
    assert (i2.eps, i2.oracle, i2.group) == (0.1, "unrolled", "own")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("attackes: []", "unknown key 'attackes'; did you mean 'attacks'"),
        ("attacks: [{name: a, attack: pgd, option: {}}]", "unknown key 'option'; did you mean 'options'"),
        ("attacks: [{name: a, attack: pgdd}]", "attack must be one of pgd"),
        ("attacks: [{name: a, attack: pgd, eps: 8/0}]", "eps must be a number"),
        ("attacks: [{name: a/b, attack: pgd}]", "name is letters"),
        ("attacks: [{name: a, attack: pgd}, {name: a, attack: apgd}]", "a stands there twice"),
        ("attacks: [{attack: pgd}]", "a mapping with a name"),
        ("include: [quikc]", "did you mean quick"),
        ("{}", "names no attack"),
        ("- a", "expected a mapping"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_mistake_in_a_suite_is_named(tmp_path, text, message):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        make_suite(file, context())


def test_without_dynamics_the_grid_is_the_predictor_s_own_gradient_and_the_suite_says_so():
    suite = make_suite("grid", context(lambda x: x.flatten(1)))
    assert [(spec.name, spec.oracle) for spec in suite.specs] == [("pgd-direct", "direct")]
    assert any("no dynamics" in note for note in suite.notes)


def test_losses_that_need_more_classes_are_refused_before_anything_runs():
    subject, aa = Subject(small_deq()), replace(SPEC, name="all", attack="autoattack", options={})
    targeted = replace(SPEC, attack="apgd", options={"loss": "dlr_targeted"})
    for spec, classes in ((aa, 4), (targeted, 4), (replace(SPEC, options={"loss": "dlr"}), 3), (SPEC, 2)):
        check_buildable([spec], subject, 0, classes)
        with pytest.raises(ValueError, match=f"needs at least {classes} classes, the predictor has {classes - 1}"):
            check_buildable([spec], subject, 0, classes - 1)
