"""What is shown is what the model does, and the Python and the command beside it do the same again."""

import base64
import contextlib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import robustdeq as rd
from robustdeq.app.case import Case
from robustdeq.app.catalogue import Catalogue
from robustdeq.app.drawing import charts, strip
from robustdeq.app.look import look
from robustdeq.app.page import export, headline
from robustdeq.app.poster import poster
from robustdeq.app.script import script
from robustdeq.app.views import ABSENT
from robustdeq.cli.arguments.checkpoint import resolve
from robustdeq.cli.arguments.deploy import OwnDefence, deploy, deployed
from robustdeq.cli.main import main
from tests.examples.scripts import EXAMPLES

DIGITS = "digits-nano-trades-random"
FAST = {"model": DIGITS, "steps": 3, "defence_steps": 2}


def drawn_digit():
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


CASES = [
    Case(**FAST, image="test:7"),
    Case(**FAST, image="test:7", oracle="unrolled", oracle_state=2, oracle_view="aware", state="5", eps="0.2"),
    Case(**FAST, image=drawn_digit(), attack="apgd", defence_variant="released", seed=3),
    Case(**FAST, image=drawn_digit(), label=3, oracle="watched", state="final"),
    Case(**FAST, image="photo:flower", attack="none", defence="none"),
    Case(
        **FAST,
        image="test:9",
        oracle="carried",
        oracle_view="bpda",
        defence_resolve=False,
        defence_direction="gradient",
    ),
]


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue([DIGITS, "cifar10-tiny-resnet-trades"], resolve)


def test_the_traces_are_the_trajectories_of_model_and_defence(catalogue):
    looked = look(CASES[0], catalogue, deployed)
    model = rd.load(DIGITS)
    defended = rd.EntropyReduction(model, steps=2, step_size=0.15 / 4, radius=0.15, direction="sign")
    clean, attacked, back = looked.view.traces
    passes = (model.trajectory(looked.clean), model.trajectory(looked.attacked), defended.trajectory(looked.attacked))
    for trace, expected in zip((clean, attacked, back), passes, strict=True):
        assert trace.prediction == [*expected.logits[:, 0].argmax(-1).tolist(), expected.deployed[0].argmax().item()]
        assert trace.entropy == pytest.approx(expected.entropy[:, 0].tolist(), rel=1e-4)
        assert trace.truth[:-1] == pytest.approx(expected.logits[:, 0].softmax(-1)[:, looked.view.label].tolist())
    apart = (passes[1].states - passes[0].states).flatten(2).norm(dim=-1) / passes[0].states.flatten(2).norm(dim=-1)
    assert attacked.distance == pytest.approx(apart[:, 0].tolist(), rel=1e-4)
    assert float((looked.attacked - looked.clean).abs().max()) == pytest.approx(0.15)
    assert looked.view.path.since == [2, 4, 6, 8]
    assert looked.view.path.inner_entropy[0] == pytest.approx(passes[2].inner_entropy[0, :, 0].tolist(), rel=1e-4)


def test_the_regions_of_the_plane_are_the_head_s_classes_where_the_states_lie(catalogue):
    view = look(CASES[0], catalogue, deployed).view
    plane, size, agreed = view.plane, len(view.plane.regions), []
    assert plane.share > 0.8  # so little of the states lies outside the plane that the head can be read off it
    for trace, path in zip(view.traces, plane.paths, strict=True):
        for (x, y), prediction in zip(path, trace.prediction, strict=False):
            column = round((x - plane.low[0]) / (plane.high[0] - plane.low[0]) * (size - 1))
            row = round((plane.high[1] - y) / (plane.high[1] - plane.low[1]) * (size - 1))
            agreed.append(plane.regions[row][column] == prediction)
    assert sum(agreed) > 0.7 * len(agreed)


LONG = [pytest.param(case, marks=pytest.mark.long) for case in CASES[3:]]


@pytest.mark.parametrize("case", [*CASES[:3], *LONG], ids=range(len(CASES)))
def test_the_python_beside_a_view_makes_the_same_images_and_predictions(case, catalogue, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    looked = look(case, catalogue, deployed)
    scope, printed = {}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(script(looked), "script", "exec"), scope)
    torch.testing.assert_close(scope["attacked"], looked.attacked)
    lines = dict(re.findall(r"^(\w+) \[(.*)\]$", printed.getvalue(), re.M))
    for trace in looked.view.traces:
        assert lines[trace.name] == ", ".join(map(str, trace.prediction[:8]))
    last = looked.view.traces[-1]
    confidence = float(scope["deployed"](scope["attacked"]).softmax(-1).max())
    assert confidence == pytest.approx(last.confidence[looked.view.deployed], rel=1e-4)


@pytest.mark.parametrize("case", [CASES[1], CASES[2]], ids=["unrolled", "drawn"])
def test_the_command_beside_a_view_writes_the_same_page_and_picture(case, catalogue, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    looked = look(case, catalogue, deployed)
    export(looked, tmp_path / "served")
    words = shlex.split(looked.command)
    assert main(words[1:]) == 0
    assert "case/index.html (and beside it" in capsys.readouterr().out
    for name in ("index.html", "case.svg", "case.py", "case.json"):
        assert (tmp_path / "case" / name).read_bytes() == (tmp_path / "served" / name).read_bytes(), name
    said = json.loads((tmp_path / "case" / "case.json").read_text())
    assert said["headline"] == headline(looked.view)


def test_a_model_in_double_precision_is_shown_and_its_script_runs(catalogue, tmp_path):
    rd.load(DIGITS).double().save_pretrained(tmp_path / "double")
    name = str(tmp_path / "double")
    looked = look(Case(**{**FAST, "model": name}, image="test:7"), Catalogue([name], resolve), deployed)
    scope = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(script(looked), "script", "exec"), scope)
    torch.testing.assert_close(scope["attacked"], looked.attacked)


@pytest.fixture
def own_code(tmp_path, monkeypatch):
    """A folder with the example's attacks and defences."""
    monkeypatch.chdir(tmp_path)
    for name in ("my_attacks", "my_defences"):
        shutil.copy(EXAMPLES / "extend" / f"{name}.py", tmp_path)
        sys.modules.pop(name, None)
    yield tmp_path
    for name in ("my_attacks", "my_defences", "broken"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("defence", "options", "state"),
    [("Sharpen", {"radius": "8/255", "every": "1"}, "5"), ("MeanOfStates", {"states": "2"}, ""), ("Blur", {}, "final")],
)
def test_code_of_one_s_own_does_on_the_page_what_it_does_in_the_script_and_on_the_command_line(
    own_code, capsys, defence, options, state
):
    case = Case(
        model=DIGITS, image="test:7", state=state,
        attack="my_attacks:MIFGSM", attack_own={"steps": "2", "decay": "3/4"},
        defence=f"my_defences:{defence}", defence_own=options,
    )  # fmt: skip
    code = {"attack": case.attack, "defence": case.defence}
    looked = look(case, Catalogue([DIGITS], resolve, code=code), deployed)
    from my_attacks import MIFGSM

    model = rd.load(DIGITS)
    made = MIFGSM(rd.Linf(0.15), seed=0, steps=2, decay=0.75)
    wrapped = deploy(model, defence=OwnDefence(case.defence, options), state=state or None)
    oracle = (
        rd.oracles.Direct(wrapped) if defence == "Blur" else rd.oracles.Estimate(wrapped, gradient=rd.Phantom(9, 0.5))
    )
    y = torch.tensor([looked.view.label])
    torch.testing.assert_close(looked.attacked, made(oracle, looked.clean, y).images)
    trace, view = looked.view.traces[-1], looked.view
    assert trace.name == "defended"
    with torch.no_grad():
        confidence = float(wrapped(looked.attacked).softmax(-1).max())
    assert trace.confidence[view.deployed] == pytest.approx(confidence, rel=1e-4)
    assert (ABSENT in trace.prediction) == (defence == "Blur")
    assert len(trace.prediction) == len(view.columns)
    assert strip(view).count('class="cell defended"') == (1 if defence == "Blur" else 9)
    assert (view.path is not None) == (defence == "Sharpen")
    export(looked, own_code / "served")
    assert main(shlex.split(looked.command)[1:]) == 0
    for name in ("index.html", "case.svg", "case.py"):
        assert (own_code / "case" / name).read_bytes() == (own_code / "served" / name).read_bytes(), name
    capsys.readouterr()
    scope = {}
    exec(compile(script(looked), "script", "exec"), scope)
    torch.testing.assert_close(scope["attacked"], looked.attacked)


def test_the_last_column_of_a_defended_pass_is_its_own_final_state(catalogue):
    case = replace(CASES[0], state="2")
    looked = look(case, catalogue, deployed)
    defended = rd.EntropyReduction(rd.load(DIGITS), steps=2, step_size=0.15 / 4, radius=0.15, direction="sign")
    final = defended.trajectory(looked.attacked).deployed.softmax(-1).max()
    assert looked.view.traces[-1].confidence[-1] == pytest.approx(float(final), rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attack": "my_attacks:MIFGSM", "attack.stpes": "3"}, "--attack my_attacks:MIFGSM has no option 'stpes'"),
        ({"attack": "my_defences:Blur"}, "my_defences:Blur: it fails (TypeError: Blur.__init__() got an unexpected"),
        ({"attack": "my_attacks:Averaged"}, "--attack my_attacks:Averaged needs the option predictor"),
        ({"defence": "my_defences:Blur", "defence.weight": "x"}, "weight: expected a number, got x"),
    ],
)
def test_wrong_code_of_one_s_own_gets_a_sentence(own_code, changes, message):
    case = Case.of({"model": DIGITS, "image": "test:0", **changes})
    code = {name: getattr(case, name) for name in case.own}
    with pytest.raises(ValueError, match=re.escape(message)):
        look(case, Catalogue([DIGITS], resolve, code=code), deployed)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("{}['boom']", "broken:defend: it fails (KeyError: 'boom')"),
        (
            "predictor(x).argmax(1)",
            "a predictor returns logits, (images, classes): for 1 images this one gave a tensor",
        ),
    ],
)
def test_a_defence_of_one_s_own_that_fails_on_images_is_named(own_code, answer, message):
    (own_code / "broken.py").write_text(f"def defend(predictor):\n    return lambda x: {answer}\n")
    case = Case(model=DIGITS, image="test:0", defence="broken:defend")
    with pytest.raises(ValueError, match=re.escape(message)):
        look(case, Catalogue([DIGITS], resolve, code={"defence": case.defence}), deployed)


OWN = """
import robustdeq as rd
from torch import nn

def defended():
    model = rd.load("digits-nano-trades-random")
    return rd.EarlyState(rd.EntropyReduction(model, steps=1, direction="sign"), state=5)

def plain():
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10, bias=False))
    nn.init.eye_(net[2].weight)
    net.metadata = {"dataset": "digits", "eps": 0.15}
    return net
"""


@pytest.mark.long
@pytest.mark.parametrize("function", ["defended", "plain"])
def test_the_script_of_a_model_of_one_s_own_runs_where_its_module_lies(function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_explored.py").write_text(OWN)
    name = f"own_explored:{function}"
    looked = look(Case(**{**FAST, "model": name}, image="test:7"), Catalogue([name], resolve), deployed)
    export(looked, tmp_path / "case")
    command = [sys.executable, "-W", "error", "case/case.py"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert f"{looked.view.traces[-1].confidence[looked.view.deployed]:.4f}" in run.stdout
    sys.modules.pop("own_explored", None)


def test_an_image_file_is_taken_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (30, 20), "red").save("photo.png")
    command = ["explore", DIGITS, "--image", "photo.png", "--attack", "none", "--defence", "none", "--export", "out"]
    assert main(command) == 0
    assert "resized from 20x20 to 8x8" in (tmp_path / "out" / "index.html").read_text()
    assert main([*command[:3], "nowhere.png", *command[4:]]) == 1
    assert "no file nowhere.png" in capsys.readouterr().err


def test_a_model_without_states_is_shown_with_its_predictions_alone(catalogue):
    view = look(Case(model="cifar10-tiny-resnet-trades", image="photo:flower", steps=2), catalogue, deployed).view
    assert view.columns == ["final"]
    assert [trace.name for trace in view.traces] == ["clean", "attacked"]
    assert list(charts(view)) == []
    assert "no dynamics" in view.notes[-1]
    assert strip(view).count('class="cell') == 2


def test_a_pass_that_is_not_finite_is_drawn_and_said():
    model = rd.load(DIGITS)
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter.fill_(float("nan"))
    known = resolve(DIGITS)
    object.__setattr__(known, "predictor", model)
    view = look(Case(model="broken", image="test:0"), Catalogue(["broken"], lambda _: known), deployed).view
    assert "not finite" in view.notes[-1]
    assert "Wrong without any attack: not finite" in headline(view)[0]
    assert "nan" not in (poster((view, headline(view))) + strip(view) + "".join(svg for _, svg in charts(view))).lower()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": "test:397"}, "there are test images 0 to 396"),
        ({"image": "data:image/png;base64,AAAA"}, "the image in the link is not an image"),
        ({"image": "/etc/passwd"}, "no image '/etc/passwd': choose a test image, draw one, or upload a file"),
        ({"model": "/etc"}, "no model /etc was chosen when the explorer started"),
        ({"eps": "2"}, "eps must be between 0 and 1"),
        ({"state": "9"}, "the model has states 1 to 8, got --state 9"),
        ({"label": 10}, "a label is 0 to 9, got 10"),
    ],
)
def test_what_cannot_be_shown_gets_a_sentence(changes, message, catalogue):
    with pytest.raises((ValueError, RuntimeError), match=re.escape(message)):
        look(Case.of({"model": DIGITS, "image": "test:0", **changes}), catalogue, deployed)
