"""f at z^[0]: what does not depend on the image is computed once for the whole batch."""

import torch

import robustdeq as rd


def test_f_at_the_initial_state_is_f_of_zeros_and_prepared_for_one_row_only():
    torch.manual_seed(0)
    model = rd.create_model("mdeq-nano").double().eval()
    f, z0 = model.begin(torch.rand(5, 1, 8, 8, dtype=torch.float64))
    zeros = torch.zeros(z0.shape, dtype=torch.float64)
    assert z0.equal(zeros)
    torch.testing.assert_close(f(z0), f(zeros), rtol=0, atol=0)
    assert len(f.prepare(z0).b) == 1
    assert len(f.prepare(zeros).b) == 5


def test_dropout_masks_differ_between_rows_at_the_initial_state():
    torch.manual_seed(0)
    model = rd.create_model("mdeq-nano", dropout=0.5).double().train()
    u = model.encoder(torch.rand(5, 1, 8, 8, dtype=torch.float64)).detach()
    f = model.dynamics.bind(u, generator=torch.Generator().manual_seed(0))
    z0 = model.dynamics.initial(u)
    torch.testing.assert_close(f(z0), f(z0.contiguous()), rtol=0, atol=0)
