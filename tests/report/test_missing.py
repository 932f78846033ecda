"""What a report says is missing: what no store of a predictor holds, not what each store does not."""

from dataclasses import replace

from robustdeq.report import find_sources
from robustdeq.report.missing import missing_experiments
from tests.report.results import attack, change, grid_attack, grid_of, make_store, two_attacks

AA = attack("aa", "autoattack", attack="autoattack", options={})


def own(folder, label):
    """The items that are missing of a store's predictor itself."""
    return {m.item for m in missing_experiments(find_sources([folder])) if m.what.startswith(f"{label}: ")}


def transfers(folder):
    """The pairs of Table 3 that are missing."""
    return [m for m in missing_experiments(find_sources([folder])) if m.item == "Table 3"]


def shown(source, names=("pgd-i1-K3-l0.5", "pgd-i2-K1-l1")):
    """Attacks that show the images of a source's grid, as `sources` writes them."""
    configs, model = source.manifest.attacks, source.manifest.model.hash
    specs = {}
    for name in names:
        place = {"store": f"../{source.folder.name}", "attack": name, "model": model, "hash": configs[name].hash}
        specs |= attack(f"from.{source.folder.name}.{name}", "transfer", attack="stored", options=place, oracle="none")
    return specs


GRID = "Tables 1, 6, 7, 8, Figs. 3a, 5"


def test_what_another_store_of_the_predictor_holds_is_not_missing(tmp_path):
    two_attacks(tmp_path / "ablation", keep=True)
    assert {GRID, "Table 1"} <= own(tmp_path, "ablation")
    specs = grid_of(2) | AA
    make_store(tmp_path / "whole", {name: [] for name in specs}, specs=specs)
    assert own(tmp_path, "ablation") == set()
    # residuals and images are in the ablation; Table 2 has grid and ready-made attack of one store
    assert own(tmp_path, "whole") == {"Table 2"}


def test_a_smaller_store_stands_for_images_to_look_at_but_not_for_accuracies_or_residuals(tmp_path):
    specs = attack("pgd-ready", "ready", diagnostics=True) | AA
    make_store(tmp_path / "small", {name: [] for name in specs}, specs=specs, images=5, keep=True)
    specs = grid_of(2) | attack("pgd-ready", "ready")
    make_store(tmp_path / "whole", {name: [] for name in specs}, specs=specs)
    assert own(tmp_path, "whole") == {"Table 1", "Figs. 2, 3c"}


def test_another_training_s_store_does_not_stand_for_it_nor_does_one_of_another_defence_or_budget(tmp_path):
    two_attacks(tmp_path / "a")
    specs = grid_of(2) | AA
    for name, changes in (("b", {"states": "random"}), ("c", {"defended": True}), ("d", {"eps": 0.3})):
        make_store(tmp_path / name, {attack: [] for attack in specs}, specs=specs, **changes)
        assert {GRID, "Table 1"} <= own(tmp_path, "a"), name


def test_predictors_of_unknown_weights_stand_each_for_itself(tmp_path):
    for name in ("a", "b"):
        store = two_attacks(tmp_path / name)
        change(store, predictors={"deployed": replace(store.manifest.predictors["deployed"], weights_sha256=None)})
    assert own(tmp_path, "a") == own(tmp_path, "b") != set()


def test_a_store_made_with_union_asks_for_single_attacks_only_where_no_other_has_them(tmp_path):
    two_attacks(tmp_path / "u", union=True)
    assert own(tmp_path, "u") == {"Tables 1, 2, 8"}
    two_attacks(tmp_path / "s")
    assert own(tmp_path, "u") == set()


def test_the_figures_of_the_ready_made_attack_are_missing_where_it_was_run_without_them(tmp_path):
    specs = attack("pgd-ready", "ready")
    make_store(tmp_path / "a", {"pgd-ready": []}, specs=specs)
    assert "Figs. 2, 3c" in own(tmp_path, "a")
    make_store(tmp_path / "b", {"pgd-i1-K1-l0.5": []}, specs=grid_attack(1, 1, 0.5))  # has neither
    assert "Figs. 2, 3c" in own(tmp_path, "a")
    two_attacks(tmp_path / "c")
    assert "Figs. 2, 3c" not in own(tmp_path, "a") | own(tmp_path, "c")


def test_the_pairs_that_table_3_lacks_are_named_with_the_command_that_adds_them(tmp_path):
    a = two_attacks(tmp_path / "a", keep=True)
    specs = grid_attack(1, 3, 0.5) | grid_attack(2, 1, 1.0) | shown(a)
    make_store(tmp_path / "b", {name: [] for name in specs}, specs=specs, states="random")
    (found,) = transfers(tmp_path)
    assert found.what == "transfer to a from b; no images of b are kept"
    make, show = found.command.split(" && ")
    assert make.endswith(f"--suite transfer --out {tmp_path / 'b'}-transfer")
    assert show.endswith(f"--suite grid --sources {tmp_path / 'b'}-transfer --out {tmp_path / 'a'}")

    # as if both had been run: images of the same predictor in another store do
    made = two_attacks(tmp_path / "b-transfer", keep=True, states="random")
    specs = a.manifest.attacks | shown(made)
    make_store(tmp_path / "a", {name: [] for name in specs}, specs=specs, keep=True)
    assert transfers(tmp_path) == []


def test_no_pair_of_table_3_is_asked_for_whose_images_are_others(tmp_path):
    a = two_attacks(tmp_path / "a", keep=True)
    specs = grid_attack(1, 3, 0.5) | shown(a)
    make_store(tmp_path / "b", {name: [] for name in specs}, specs=specs, states="random", images=5)
    assert transfers(tmp_path) == []
