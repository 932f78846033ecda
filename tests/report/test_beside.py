"""Results beside the deployed predictor: defences attacked obliviously, parts of the grid, differences."""

import shutil

import pytest

from robustdeq.models.pretrained import shipped
from robustdeq.recipes import load_recipe
from robustdeq.report import find_sources, make_tables
from robustdeq.report.figures import make_figures
from robustdeq.report.images import make_pages
from robustdeq.report.missing import missing_experiments
from tests.report.results import attack, autoattack, grid_attack, grid_of, make_store, two_attacks

MAIN = (("entropy-sign", "paper"), ("entropy-released", "released"))
SETTINGS = (*MAIN, ("entropy-sign-T1-R1", "paper", 1, 1))


def records(folder, name):
    """The rows of a table of a folder, as texts by column."""
    return rows_of(make_tables(find_sources([folder])), name)


def rows_of(tables, name):
    """The rows of a table, as texts by column."""
    found = [table for table in tables if table.name == name]
    return [{k: cell.text for k, cell in zip(t.head, row, strict=True)} for t in found for row in t.rows]


@pytest.fixture(scope="module")
def undefended(tmp_path_factory):
    """A store of an undefended model with AutoAttack, scored beside three defences that save images 2 and 5."""
    folder = tmp_path_factory.mktemp("beside")
    specs = grid_attack(1, 3, 0.5) | grid_attack(2, 1, 1.0) | attack("pgd-ready", "ready", diagnostics=True)
    specs |= autoattack("aa-strongest")
    specs |= attack("square", "table4", attack="square", options={}, oracle="direct", limit=1000)
    broken = {"pgd-i1-K3-l0.5": [1, 2, 3], "pgd-i2-K1-l1": [2, 3, 4, 5], "pgd-ready": [1], "square": [7]}
    broken["aa-strongest"] = [2, 3, 4, 5, 6]
    also = {"also": SETTINGS, "saves": [2, 5], "states": "random", "keep": True}
    make_store(folder / "s", broken, wrong=1, specs=specs, **also)
    return folder


@pytest.fixture(scope="module")
def undefended_tables(undefended):
    return make_tables(find_sources([undefended]))


def test_defences_scored_beside_an_undefended_model_are_rows_marked_oblivious_without_autoattack(undefended_tables):
    rows = rows_of(undefended_tables, "table-1")
    assert [(r["store"], r["method"]) for r in rows] == [
        ("s", "+ Sec. 3.3"),
        ("s (entropy-sign, oblivious)", "+ Sec. 3.2 & 3.3, variant paper along the sign, attacked obliviously"),
        ("s (entropy-released, oblivious)", "+ Sec. 3.2 & 3.3, variant released, attacked obliviously"),
    ]
    # undefended the attacks break 1-3, 2-5, 1, 2-6 and 7 beside image 0; the defences save 2 and 5
    shown = [[r[key] for key in ("clean", "PGD", "AA", "PGD, AA", "union")] for r in rows]
    assert shown[0] == ["90.00", "50.00", "40.00", "40.00", "20.00"]
    assert shown[1] == shown[2] == ["90.00", "70.00", "-", "-", "40.00"]
    assert rows[1]["paper: PGD"] == "55.18"
    assert [r["intermediate"] for r in rows_of(undefended_tables, "table-2")] == ["50.00", "70.00", "70.00"]


@pytest.mark.usefixtures("undrawn")
def test_defences_attacked_obliviously_are_drawn_beside_the_undefended_model(undefended, tmp_path):
    two_attacks(tmp_path / "s", whole=True, also=SETTINGS, saves=[2, 5])
    figures = {f.name: f for f in make_figures(find_sources([tmp_path]))}
    assert "s 50.0; s (entropy-sign, oblivious) 70.0" in figures["figure-3a"].alt
    assert "s (entropy-released, oblivious) -0.200 at the last state" in figures["figure-3b-s"].alt
    assert "predictor entropy-sign minus deployed" in figures["figure-3b-s"].where
    assert [name for name in figures if "figure-5" in name or "figure-2" in name] == [
        "figure-2-s",
        "figure-5-s",
        "figure-5-s--entropy-sign--oblivious-",
        "figure-5-s--entropy-released--oblivious-",
    ]
    part = {f.name for f in make_figures(find_sources([undefended]))}
    assert not part & {"figure-3a", "figure-5-s"}  # a part of the grid is no figure
    ((_, pictures),) = make_pages(find_sources([undefended]))[0].groups
    assert "attacked 0.70, defended 0.50" in pictures[0].traces.alt


def test_a_defence_with_a_whole_grid_of_its_own_is_not_shown_obliviously_too(tmp_path):
    two_attacks(tmp_path / "plain", also=MAIN)
    oblivious = ["plain", "plain (entropy-sign, oblivious)", "plain (entropy-released, oblivious)"]
    two_attacks(tmp_path / "defended", defended=True)
    assert [r["store"] for r in records(tmp_path, "table-1")] == ["defended", *oblivious]  # it has a part of the grid
    two_attacks(tmp_path / "plain", also=MAIN, whole=True)
    two_attacks(tmp_path / "defended", defended=True, whole=True)
    assert [r["store"] for r in records(tmp_path, "table-1")] == ["defended", oblivious[0], oblivious[2]]


@pytest.mark.usefixtures("undrawn")
def test_results_with_a_part_of_the_grid_stand_apart_from_whole_grids(tmp_path):
    two_attacks(tmp_path / "part")
    assert [r["store"] for r in records(tmp_path, "table-1")] == ["part"]  # it is all there is
    two_attacks(tmp_path / "whole", whole=True)
    tables = {table.name: {row[0].text for row in table.rows} for table in make_tables(find_sources([tmp_path]))}
    assert all(tables[name] == {"whole"} for name in ("table-1", "table-6-7", "table-8", "states"))
    assert (tables["table-1-in-part"], tables["table-2"]) == ({"part"}, {"part", "whole"})
    figures = [f.name for f in make_figures(find_sources([tmp_path])) if "figure-2" in f.name]
    assert figures == ["figure-2-whole"]


@pytest.mark.usefixtures("undrawn")
def test_residuals_come_from_another_store_of_the_predictor_if_the_store_with_the_grid_has_none(tmp_path):
    def residuals(folder):
        return [f.name for f in make_figures(find_sources([folder])) if "figure-2" in f.name]

    specs = grid_of(2)
    make_store(tmp_path / "grid", {name: [1] for name in specs}, specs=specs)
    assert residuals(tmp_path) == ["figure-2-grid"]
    ready = attack("pgd-ready", "ready", diagnostics=True)
    make_store(tmp_path / "other", {"pgd-ready": [1]}, specs=ready, states="random")  # another training
    assert residuals(tmp_path) == ["figure-2-grid", "figure-2-other"]  # which has no other row
    make_store(tmp_path / "fewer", {"pgd-ready": [1]}, specs=ready, images=5)  # other images
    assert residuals(tmp_path) == ["figure-2-grid", "figure-2-other"]
    make_store(tmp_path / "ready", {"pgd-ready": [1]}, specs=ready)
    assert residuals(tmp_path) == ["figure-2-ready", "figure-2-other"]
    assert [r["store"] for r in records(tmp_path, "table-1")] == ["grid"]
    assert [r["store"] for r in records(tmp_path, "table-1-in-part")] == ["fewer", "other", "ready"]


@pytest.mark.usefixtures("undrawn")
def test_fig_2_of_several_stores_of_a_predictor_is_drawn_once(tmp_path):
    make_store(tmp_path / "part", {"pgd-i1-K1-l0.5": [1]}, specs=grid_attack(1, 1, 0.5))
    make_store(tmp_path / "ready", {"pgd-ready": [1]}, specs=attack("pgd-ready", "ready", diagnostics=True))
    figures = [f.name for f in make_figures(find_sources([tmp_path])) if "figure-2" in f.name]
    assert figures == ["figure-2-ready"]


def test_a_part_of_the_grid_with_autoattack_is_a_row_of_table_1(tmp_path):
    two_attacks(tmp_path / "whole", whole=True)
    specs = grid_attack(1, 3, 0.5) | autoattack()
    make_store(tmp_path / "part", {name: [1] for name in specs}, specs=specs)
    assert [r["store"] for r in records(tmp_path, "table-1")] == ["part", "whole"]


def test_table_4_has_one_square_for_all_pairs(undefended_tables):
    rows = {r["search"]: r for r in rows_of(undefended_tables, "table-4")}
    assert (rows["square, ours"]["no pair"], rows["square, ours"]["(3, 5)"]) == ("80.00", "-")
    assert "pgd, ours" not in rows  # nor any other search without a number


def test_suggested_commands_write_to_a_store_only_if_they_score_the_same_predictors(undefended):
    found = missing_experiments(find_sources([undefended]))
    (settings,) = [m for m in found if m.item == "Table 5"]
    assert settings.what.startswith("6 of the 16")  # of T_f 1 and 2: it has two states
    assert settings.command.endswith(f"--limit 10 --suite settings --out {undefended / 's'}-settings")
    (defended,) = [m for m in found if "so far it is attacked obliviously" in m.what]
    assert defended.command.startswith("robustdeq evaluate runs/some/best --limit 10 --defence entropy --suite paper")
    assert not [m for m in found if m.command.endswith(f"--out {undefended / 's'}")]  # would score other predictors


def test_suggested_recipes_exist_and_are_trained_only_if_their_weights_are_not_shipped(tmp_path):
    for name, changes in (
        ("digits", {}),
        ("tiny", {"data": "cifar10", "model": "mdeq-thin"}),
        ("large", {"data": "cifar10"}),
    ):
        two_attacks(tmp_path / name, objective=None, **changes)
        found = [m for m in missing_experiments(find_sources([tmp_path / name])) if m.item == "Table 1"]
        words = [m.command.split(" ") for m in found if not m.what.startswith(name)]  # not those for its own model
        assert len(words) == (8 if name == "digits" else 10)
        assert all((name == "digits") != ("--data-root data" in " ".join(command)) for command in words)
        if name == "tiny":
            assert all(command[:2] == ["robustdeq", "evaluate"] and command[2] in shipped() for command in words)
        else:
            trained = [command for command in words if command[1:3] == ["train", "--recipe"]]
            assert all(command[2] in shipped() for command in words if command not in trained)
            assert all(map(load_recipe, {command[3] for command in trained}))


def test_the_command_for_transfer_resumes_a_store_with_the_kept_images_of_another(tmp_path):
    two_attacks(tmp_path / "a", defended=True)
    two_attacks(tmp_path / "b", keep=True)
    found, other = (m for m in missing_experiments(find_sources([tmp_path])) if m.item == "Table 3")
    assert (found.what, other.what) == ("transfer to a from b", "transfer to b from a; no images of a are kept")
    folders = f"--sources {tmp_path / 'b'} --out {tmp_path / 'a'}"
    assert f"--defence entropy --suite grid {folders}" in found.command


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    """TRADES without (base) and with random states (rand), each beside a defence, and a ResNet."""
    folder = tmp_path_factory.mktemp("six")
    specs = grid_attack(1, 1, 0.5) | grid_attack(2, 1, 0.5) | autoattack("aa-ready")
    names = list(specs)
    common = {"wrong": 1, "specs": specs, "model": "mdeq-tiny", "also": MAIN[:1]}
    make_store(folder / "base", dict(zip(names, ([1, 2, 3], [4, 5], [1, 2, 3, 4]), strict=True)), saves=[1], **common)
    outcomes = dict(zip(names, ([1, 2], [3], [1, 2]), strict=True))
    make_store(folder / "rand", outcomes, saves=[1, 2], states="random", **common)
    direct = attack("pgd-direct", "ready") | autoattack()
    resnet = {"specs": direct, "model": "resnet-tiny", "dynamic": False}
    make_store(folder / "resnet", {"pgd-direct": [1, 2, 3, 4], "aa": [5]}, wrong=2, **resnet)
    make_store(folder / "other", outcomes, **common | {"model": "mdeq-nano"})  # of another size
    return folder


def test_differences_answer_the_questions_of_the_paper_between_results_that_differ_in_nothing_else(six):
    rows = [r for r in records(six, "differences") if "other" not in r["without"]]
    pairs = [(r["question"].split("?")[0], r["without"].split(":")[0], r["with"].split(":")[0]) for r in rows]
    base, rand = "base (entropy-sign, oblivious)", "rand (entropy-sign, oblivious)"
    resnet = "Does a DEQ beat the ResNet of equal size"
    assert pairs == [
        ("Does Sec. 3.3 help", "base", "rand"),
        ("Does Sec. 3.3 help", base, rand),
        ("Does Sec. 3.2 help", "base", base),
        ("Does Sec. 3.2 help", "rand", rand),
        ("Do they compose", "base", rand),
        *((resnet, "resnet", name) for name in ("base", base, "rand", rand)),
    ]
    shown = {
        pair: [r[k].split(" ")[0] for k in ("clean", "PGD", "AA", "union")] for pair, r in zip(pairs, rows, strict=True)
    }
    # in %, PGD, AA, union: base 60, 50, 40; rand 70, 70, 60; their defences 70, -, 50 and 80, -, 80; resnet 50, 70, 40
    assert shown[pairs[0]] == ["+0.00", "+10.00", "+20.00", "+20.00"]
    assert shown[pairs[2]] == ["+0.00", "+10.00", "-", "+10.00"]
    assert shown[pairs[4]] == ["+0.00", "+20.00", "-", "+40.00"]
    assert shown[resnet, "resnet", "rand"] == ["+10.00", "+20.00", "+0.00", "+20.00"]


def test_no_union_is_compared_if_only_one_side_faced_autoattack(six, tmp_path):
    shutil.copytree(six / "rand", tmp_path / "rand")
    direct = {"specs": attack("pgd-direct", "ready"), "model": "resnet-tiny", "dynamic": False}
    make_store(tmp_path / "resnet", {"pgd-direct": [1, 2, 3, 4]}, wrong=2, **direct)
    rows = [r for r in records(tmp_path, "differences") if r["without"].startswith("resnet")]
    assert len(rows) == 2  # beside the model and its defence, which was shown the images of AutoAttack
    assert all((r["PGD"] != "-", r["AA"], r["union"]) == (True, "-", "-") for r in rows)


def test_of_several_stores_of_two_predictors_the_pair_with_most_to_compare_is_shown(tmp_path):
    grid = grid_attack(1, 1, 1.0)
    aa = autoattack("aa-ready")
    for states in ("final", "random"):
        make_store(tmp_path / f"{states}-few", {"pgd-i1-K1-l1": [0]}, specs=grid, states=states, images=5)
        make_store(tmp_path / f"{states}-many", {"pgd-i1-K1-l1": [0]}, specs=grid, states=states)
        broken = {"pgd-i1-K1-l1": [0], "aa-ready": [1]}
        make_store(tmp_path / f"{states}-all", broken, specs=grid | aa, states=states)
    (row,) = records(tmp_path, "differences")
    assert (row["without"], row["with"]) == ("final-all: baseline", "random-all: + Sec. 3.3")
    assert row["AA"] != "-"
