"""Several trainings of a recipe."""

from dataclasses import replace

from robustdeq.report import find_sources, make_tables
from tests.report.results import attack, change, grid_attack, make_store, two_attacks

AA = attack("aa", "autoattack", attack="autoattack", options={})


def seeds(folder):
    """The rows of the table of seeds, as texts by column; None without that table."""
    found = {table.name: table for table in make_tables(find_sources([folder]))}.get("seeds")
    return found and [{k: c.text for k, c in zip(found.head, row, strict=True)} for row in found.rows]


def test_two_seeds_are_shown_by_their_mean_and_range(tmp_path):
    two_attacks(tmp_path / "one", seed=0)
    make_store(
        tmp_path / "two",
        {"pgd-i1-K3-l0.5": [1, 2], "pgd-i2-K1-l1": [2], "pgd-ready": [1, 2, 3]},
        wrong=0,
        specs=grid_attack(1, 3, 0.5) | grid_attack(2, 1, 1.0) | attack("pgd-ready", "ready"),
        seed=1,
    )
    (row,) = seeds(tmp_path)
    assert row["seeds"] == "0, 1"
    assert row["clean"] == "95.00 (90.00 to 100.00)"
    assert row["PGD-10"] == "75.00 (70.00 to 80.00)"
    assert row["PGD"] == "65.00 (50.00 to 80.00)"
    assert row["AA"] == "-"


def test_one_seed_two_recipes_or_unknown_seeds_are_no_row(tmp_path):
    two_attacks(tmp_path / "one", seed=0)
    two_attacks(tmp_path / "again", seed=0)
    two_attacks(tmp_path / "random", seed=1, states="random")
    two_attacks(tmp_path / "defended", seed=2, defended=True)  # its base faced other images
    two_attacks(tmp_path / "unknown")
    assert seeds(tmp_path) is None


def test_a_checkpoint_that_says_something_else_of_its_recipe_is_another_recipe(tmp_path):
    stores = [two_attacks(tmp_path / f"{seed}", seed=seed) for seed in (0, 1, 2)]
    for store, words in zip(stores, ({"step": 10}, {"step": 20, "validation_pgd": 0.3}, {"held_out": 5}), strict=True):
        model = store.manifest.model
        change(store, model=replace(model, metadata=model.metadata | words))
    assert [row["seeds"] for row in seeds(tmp_path)] == ["0, 1"]


def test_a_number_over_other_attacks_or_images_is_left_out(tmp_path):
    first = grid_attack(1, 3, 0.5) | AA
    make_store(tmp_path / "one", {name: [1] for name in first}, specs=first, seed=0)
    other = grid_attack(2, 3, 0.5) | attack("aa", "autoattack", attack="autoattack", options={}, limit=5)
    make_store(tmp_path / "two", {name: [1] for name in other}, specs=other, seed=1)
    (row,) = seeds(tmp_path)
    assert (row["clean"], row["PGD"], row["AA"]) == ("100.00 (100.00 to 100.00)", "-", "-")
    make_store(tmp_path / "two", {name: [1, 2] for name in first}, specs=first, seed=1)
    (row,) = seeds(tmp_path)
    assert (row["PGD"], row["AA"]) == ("85.00 (80.00 to 90.00)", "85.00 (80.00 to 90.00)")


def test_of_several_stores_of_a_seed_the_one_with_autoattack_is_shown(tmp_path):
    for seed in (0, 1):
        specs = grid_attack(1, 3, 0.5) | AA
        make_store(tmp_path / f"aa-{seed}", {name: [1] for name in specs}, specs=specs, seed=seed)
    many = grid_attack(1, 3, 0.5) | grid_attack(1, 4, 0.5) | grid_attack(1, 5, 0.5)
    make_store(tmp_path / "many", {name: [1, 2] for name in many}, specs=many, seed=0)
    (row,) = seeds(tmp_path)
    assert row["AA"] == "90.00 (90.00 to 90.00)"
