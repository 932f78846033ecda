"""torchdeq models as DEQs of ours."""

import warnings

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import robustdeq as rd

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torchdeq = pytest.importorskip("torchdeq")
    from torchdeq.norm import apply_norm

WIDTH = 12


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)
        nn.init.orthogonal_(self.linear.weight, gain=0.4)

    def forward(self, z, u):
        return torch.tanh(self.linear(z) + u)


class Theirs(nn.Module):
    """A model as torchdeq's users write it."""

    def __init__(self, norm=None, **config):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, WIDTH))
            self.f = Cell()
            self.head = nn.Linear(WIDTH, 5)
        if norm:
            apply_norm(self.f, norm)
        self.deq = torchdeq.get_deq(**{"f_max_iter": 60, "f_tol": 1e-9, "b_tol": 1e-9, **config})

    def forward(self, x):
        torchdeq.reset_deq(self)
        u = self.encoder(x)
        states, _ = self.deq(lambda z: self.f(z, u), torch.zeros_like(u))
        return self.head(states[-1])


@pytest.fixture
def x():
    return torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


CONFIGS = {
    "default": {},
    "broyden": {"f_solver": "broyden", "f_stop_mode": "rel"},
    "anderson": {"f_solver": "anderson", "grad": 5, "tau": 0.5},
    "implicit": {"f_solver": "fixed_point_iter", "ift": True, "b_solver": "broyden"},
    "normed": {"norm": "weight_norm", "ift": True},
}


@pytest.mark.parametrize("config", CONFIGS)
def test_logits_at_convergence_are_torchdeq_s(config, x):
    theirs = Theirs(**CONFIGS[config]).double().eval()
    ours = rd.adapt.torchdeq(theirs, x)
    expected = theirs(x)
    assert (
        not expected.requires_grad
        or not torch.autograd.grad(expected.sum(), theirs.f.parameters(), allow_unused=True)[0]
    )
    assert ours.run(x, record=True).state.solution.converged.all()
    assert_close(ours(x), expected, rtol=0, atol=1e-7)
    assert {p.data_ptr() for p in ours.parameters()} == {p.data_ptr() for p in theirs.parameters()}


def test_in_eval_mode_torchdeq_has_no_gradient_and_ours_has_that_of_training(x):
    theirs = Theirs(ift=True, f_solver="broyden").double()
    y = torch.tensor([0, 1, 2, 3, 4, 0])
    theirs.head.requires_grad_(False)
    loss = nn.functional.cross_entropy(theirs.eval()(x.clone().requires_grad_()), y)
    with pytest.raises(RuntimeError, match="does not require grad"):
        loss.backward()
    ours = rd.adapt.torchdeq(theirs, x).eval()
    variable, own = x.clone().requires_grad_(), x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(nn.functional.cross_entropy(theirs.train()(variable), y), variable)
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(ours.eval()(own), y), own)
    assert_close(gradient, expected, rtol=0, atol=1e-7)
    assert (rd.PGD(rd.Linf(0.5), steps=5)(ours, x, y).images != x).any()


def test_parts_may_be_functions_or_names(x):
    theirs = Theirs().double().eval()
    theirs.renamed = nn.ModuleDict({"first": theirs.encoder})
    ours = rd.adapt.torchdeq(theirs, x, encoder="renamed.first", f=lambda z, u: theirs.f(z, u), head=theirs.head)
    assert_close(ours(x), theirs(x), rtol=0, atol=1e-7)
    assert ours.to(torch.float32)(x.float()).dtype == torch.float32


class Shifted(Theirs):
    def forward(self, x):
        u = self.encoder(x)
        states, _ = self.deq(lambda z: self.f(z, u), torch.ones_like(u))
        return self.head(states[-1]) + 1


class Twice(Theirs):
    def forward(self, x):
        return self.head(self.deq(lambda z: self.f(z, self.encoder(x)), torch.zeros(len(x), WIDTH).double())[0][-1]) + (
            super().forward(x)
        )


class Lists(Theirs):
    def forward(self, x):
        u = self.encoder(x)
        states, _ = self.deq(lambda a, b: (self.f(a, u), self.f(b, u)), [torch.zeros_like(u)] * 2)
        return self.head(states[-1][0])


ERRORS = {
    "another start": (Shifted, {}, "give initial="),
    "more after the solve": (Shifted, {"initial": torch.ones_like}, "head\\(z\\) is not what the module makes"),
    "another f": (Theirs, {"f": lambda z, u: torch.tanh(u)}, "is not what the module iterates"),
    "two solves": (Twice, {}, "solves for 2 equilibria"),
    "several tensors": (Lists, {}, "the state consists of 2 tensors"),
    "unknown attribute": (Theirs, {"head": "heat"}, "Theirs has no heat"),
    "nothing like it": (Theirs, {"deq": nn.Identity()}, "f_solver"),
    "not a part": (Theirs, {"head": 3}, "must be a module, a function or the name"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_taken_over_is_said(case, x):
    kind, options, message = ERRORS[case]
    with pytest.raises((rd.adapt.AdaptError, AttributeError), match=message):
        rd.adapt.torchdeq(kind().double().eval(), x, **options)


def test_a_module_without_the_usual_names_says_which_part_is_missing():
    theirs = Theirs()
    theirs.first = theirs.encoder
    del theirs.encoder
    with pytest.raises(rd.adapt.AdaptError, match=r"give encoder= as a module.*attributes are f, head, deq, first"):
        rd.adapt.torchdeq(theirs)
    with pytest.raises(rd.adapt.AdaptError, match="contains 0 modules made by torchdeq"):
        rd.adapt.torchdeq(nn.Linear(2, 2))
