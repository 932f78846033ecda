"""Named lists of attacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.suites.attacks import autoattack, grid, grid_name, has_grid, on_base, ready, square, unrolled
from robustdeq.evaluation.suites.audit import audit_suite, reduced_audit
from robustdeq.evaluation.suites.context import Setting
from robustdeq.evaluation.suites.subject import Callee
from robustdeq.evaluation.suites.suite import Suite
from robustdeq.evaluation.suites.variants import entropy_reduced, table_5_settings, two_variants

TABLE_4 = ((3, 5), (3, 4), (3, 6), (3, 7), (4, 5), (5, 5), (6, 5))
"""The paper's strongest (i, K_a), under which it also ran APGD-CE and Square."""
SQUARE_IMAGES = 1000
"""As many as the paper ran Square on; on more, it is an attack with a name of its own beside the audit's."""


def _quick(setting: Setting) -> Suite:
    aware = [ready(setting, aware=True)] if setting.aware and setting.defended else []
    return Suite("quick", [ready(setting), *aware])


def _grid(setting: Setting) -> Suite:
    return Suite("grid", grid(setting))


def _autoattack(setting: Setting) -> Suite:
    found = has_grid(setting.store, setting)
    notes = []
    if setting.subject.dynamic is not None and not found:
        notes.append(
            "AutoAttack ran with the ready-made gradient (aa-ready): the store holds no complete grid whose strongest "
            "oracle it could take; run --suite grid into the same folder first for aa-strongest"
        )
    return Suite("autoattack", [autoattack(setting, with_grid=found)], notes)


def _transfer(setting: Setting) -> Suite:
    return Suite("transfer", [*grid(setting), *on_base(setting)], keep_images=True)


def _paper(setting: Setting) -> Suite:
    """All that Tables 1-8 and Figs. 2, 3 and 5 need of this model; docs/evaluate.md says which part feeds which.

    An undefended model is scored beside the entropy reductions around it. Table 3 is of models trained by TRADES:
    their images are kept. Table 5 is of TRADES with random states: only there its settings are scored too, which takes
    longer than all attacks together.
    """
    specs = [ready(setting)]
    if setting.subject.dynamic is None:
        return Suite("paper", [*specs, autoattack(setting, with_grid=False)])
    specs += [*grid(setting), *_strong_searches(setting), autoattack(setting, with_grid=True)]
    trained = setting.subject.metadata
    trades, random = trained.get("objective") == "trades", trained.get("states") == "random"
    settings = table_5_settings(setting.subject) if trades and random and not setting.defended else {}
    return Suite("paper", specs, keep_images=trades, also={**entropy_variants(setting), **settings})


def _table4(setting: Setting) -> Suite:
    """Table 4 of any model, without the rest of the grid."""
    if setting.subject.dynamic is None:
        raise ValueError("suite table4 attacks intermediate states, which needs a model with dynamics")
    pgd = [unrolled(setting, i, k, 0.5) for i, k in _pairs(setting)]
    return Suite("table4", [*pgd, *_strong_searches(setting)])


def _pairs(setting: Setting) -> list[tuple[int, int]]:
    return [(i, k) for i, k in TABLE_4 if i <= setting.subject.states]


def _strong_searches(setting: Setting) -> list[AttackSpec]:
    """APGD-CE at Table 4's (i, K_a), and Square, on 1,000 images at most."""
    specs = []
    for i, k in _pairs(setting):
        spec = unrolled(setting, i, k, 0.5)
        specs.append(
            replace(
                spec,
                name=grid_name(i, k, 0.5, attack="apgd"),
                attack="apgd",
                options={"loss": "ce"},
                oracle_options={**spec.oracle_options, "values": "deployed"},
                group="table4",
            )
        )
    if setting.data is None or setting.data.images <= SQUARE_IMAGES:
        return [*specs, square(setting, group="table4")]
    return [*specs, square(setting, name=f"square-{SQUARE_IMAGES}", limit=SQUARE_IMAGES, group="table4")]


def _settings(setting: Setting) -> Suite:
    """Table 5 of any model: the grid, scored on entropy reductions of other settings."""
    if setting.subject.dynamic is None:
        raise ValueError("suite settings varies the entropy reduction (T_f, R), which needs a model with dynamics")
    if setting.union:
        raise ValueError("suite settings scores every image on every setting (T_f, R): leave --union away")
    main = {"entropy-paper": entropy_reduced(setting.subject, variant="paper")}
    return Suite("settings", grid(setting), also={**main, **table_5_settings(setting.subject)})


def entropy_variants(setting: Setting) -> dict[str, Callee]:
    """Of an undefended model, the defended ones: oblivious attacks make the same images for all of them."""
    return {} if setting.subject.dynamic is None or setting.defended else two_variants(setting.subject)


SUITES: dict[str, Callable[[Setting], Suite]] = {
    "quick": _quick,
    "grid": _grid,
    "autoattack": _autoattack,
    "transfer": _transfer,
    "paper": _paper,
    "table4": _table4,
    "settings": _settings,
    "audit": audit_suite,
    "audit-reduced": reduced_audit,
}
