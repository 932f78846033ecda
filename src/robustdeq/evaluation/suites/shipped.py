"""The shipped suites; `SUITES` lists them by name."""

from __future__ import annotations

from dataclasses import replace

from robustdeq.attacks import AutoAttack
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.suites.attacks import (
    autoattack,
    autoattack_carried,
    grid,
    grid_name,
    has_grid,
    on_base,
    ready,
    square,
    unrolled,
)
from robustdeq.evaluation.suites.audit import audit_suite, reduced_audit
from robustdeq.evaluation.suites.suite import Context, Suite, SuiteBuilder
from robustdeq.evaluation.suites.variants import DEFAULT, entropy_reduced, entropy_variants, table_5_settings

TABLE_4 = ((3, 5), (3, 4), (3, 6), (3, 7), (4, 5), (5, 5), (6, 5))
"""The paper's strongest (i, K_a), under which it also ran APGD-CE and Square."""
SQUARE_IMAGES = 1000
"""Number of images that the paper ran Square on."""


def _quick(context: Context) -> Suite:
    aware = [ready(context, aware=True)] if context.aware and context.defended else []
    return Suite("quick", [ready(context), *aware])


def _autoattack(context: Context) -> Suite:
    found = has_grid(context)
    notes = []
    if context.dynamic and not found:
        notes.append(
            "AutoAttack ran with the ready-made gradient (aa-ready): the store holds no complete grid whose strongest "
            "oracle it could take; run --suite grid into the same folder first for aa-strongest"
        )
    return Suite("autoattack", [autoattack(context, with_grid=found)], notes)


def _paper(context: Context) -> Suite:
    """Everything that Tables 1-8 and Figs. 2, 3 and 5 need of this model; docs/evaluate.md says which part feeds which.

    Images of an undefended model are also scored on the entropy reductions around it. Images of models trained by
    TRADES are kept for Table 3. The settings of Table 5 are scored only for TRADES with random states, as in the paper:
    they take longer than all attacks together.
    """
    if not context.dynamic:
        return Suite("paper", [ready(context), autoattack(context, with_grid=False)])
    specs = [ready(context), *grid(context), *_strong_searches(context), autoattack(context, with_grid=True)]
    trained = context.subject.metadata
    trades, random = trained.get("objective") == "trades", trained.get("states") == "random"
    also = {} if context.defended else entropy_variants(context.subject)
    if trades and random and not context.defended:
        also |= table_5_settings(context.subject)
    return Suite("paper", specs, keep_images=trades, also=also)


def _table4(context: Context) -> Suite:
    """Table 4 of any model, without the rest of the grid."""
    if not context.dynamic:
        raise ValueError("suite table4 attacks intermediate states, which needs a model with dynamics")
    return Suite("table4", [*_table_4_grid(context), *_strong_searches(context)])


def _table_4_grid(context: Context) -> list[AttackSpec]:
    return [unrolled(context, i, k, 0.5) for i, k in TABLE_4 if i <= context.subject.states]


def _strong_searches(context: Context) -> list[AttackSpec]:
    """APGD-CE at Table 4's (i, K_a), and Square on at most 1,000 images.

    Square on fewer images than the data has is another attack than the audit's Square, so it has a name of its own.
    """
    specs = []
    for spec in _table_4_grid(context):
        options = spec.oracle_options
        search = replace(
            spec,
            name=grid_name(options["state"], options["steps"], 0.5, attack="apgd"),
            attack="apgd",
            options={"loss": "ce"},
            oracle_options={**options, "values": "deployed"},
            group="table4",
        )
        specs.append(search)
    if context.data is not None and context.data.images <= SQUARE_IMAGES:
        return [*specs, square(context, group="table4")]
    return [*specs, square(context, name=f"square-{SQUARE_IMAGES}", limit=SQUARE_IMAGES, group="table4")]


def _benchmark(context: Context) -> Suite:
    """The audit, and AutoAttack where it is defined; with a defence through the defended pass."""
    suite = audit_suite(context)
    if context.classes is not None and context.classes < AutoAttack(context.threat).least_classes:
        note = f"AutoAttack is left out: its targeted loss needs four classes, the predictor has {context.classes}"
        return replace(suite, name="benchmark", notes=[note])
    aware = replace(context, aware=context.defended)
    return replace(suite, name="benchmark", specs=[*suite.specs, autoattack(aware, with_grid=False)])


def _settings(context: Context) -> Suite:
    """Table 5 of any model: the grid, scored on entropy reductions of other settings."""
    if not context.dynamic:
        raise ValueError("suite settings varies the entropy reduction (T_f, R), which needs a model with dynamics")
    if context.union:
        raise ValueError("suite settings scores every image on every setting (T_f, R): leave --union away")
    main = {DEFAULT: entropy_reduced(context.subject)}
    return Suite("settings", grid(context), also={**main, **table_5_settings(context.subject)})


SUITES: dict[str, SuiteBuilder] = {
    "quick": _quick,
    "grid": lambda context: Suite("grid", grid(context)),
    "autoattack": _autoattack,
    "autoattack-carried": lambda context: Suite("autoattack-carried", [autoattack_carried(context)]),
    "transfer": lambda context: Suite("transfer", [*grid(context), *on_base(context)], keep_images=True),
    "paper": _paper,
    "table4": _table4,
    "settings": _settings,
    "audit": audit_suite,
    "audit-reduced": reduced_audit,
    "benchmark": _benchmark,
}
