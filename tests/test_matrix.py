"""The machines that are tried: which of them this processor can be, and how bits are moved."""

from __future__ import annotations

import pytest
import torch

from press import jitter, matrix
from press.notebooks import name


@pytest.mark.parametrize(
    ("processor", "possible"), [("default", 1), ("avx2", 2), ("avx512", 3), ("neon", 1)]
)
def test_instructions_that_the_processor_lacks_are_never_run(processor, possible, monkeypatch):
    monkeypatch.setattr(matrix, "best", lambda: processor)
    machines = matrix.machines(oldest=False)
    fits = {machine.name: matrix.fits_processor(machine) for machine in machines}
    assert sum(fits[f"{instructions}, threads: 1"] for instructions in matrix.SETS) == possible
    monkeypatch.setattr(matrix, "execute", lambda machine: pytest.fail("it was run"))
    for machine in machines:
        if not matrix.fits_processor(machine):
            assert "not on this processor" in matrix.row(machine)[0]


def test_a_cell_that_moved_is_named_and_counted(monkeypatch):
    notebook = f"{name(matrix.NOTEBOOKS[0])}.ipynb"
    monkeypatch.setattr(matrix, "execute", lambda machine: (9, [(notebook, "Cell 0")]))
    code = matrix.source(notebook, "Cell 0")
    written, unexpected = matrix.row(matrix.Machine("any"))
    assert (f"{notebook}, Cell 0" in written, unexpected) == (True, 1)
    written, unexpected = matrix.row(matrix.Machine("any", may_differ={code[:8]: "a reason"}))
    assert ("Cell 0 (a reason)" in written, unexpected) == (True, 0)


@pytest.mark.parametrize("why", ["WATCHED", "OLDER"])
def test_each_cell_that_is_set_apart_exists(why):
    sources = "".join(path.read_text(encoding="utf-8") for path in matrix.NOTEBOOKS)
    assert all(line in sources for line in getattr(matrix, why))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_move_by_one_unit_and_repeat(dtype):
    x = torch.rand(40, 40, generator=torch.Generator().manual_seed(0)).to(dtype)
    exact = x.exp()
    with jitter.Jitter(1):
        moved, again = x.exp(), x.exp()
    with jitter.Jitter(2):
        other = x.exp()
    up, down = exact.nextafter(exact + 1), exact.nextafter(exact - 1)
    assert ((moved == exact) | (moved == up) | (moved == down)).all()
    assert min((moved == part).float().mean() for part in (exact, up, down)) > 0.2
    assert torch.equal(moved, again)
    assert not torch.equal(moved, other)


def test_what_needs_no_rounding_stays():
    counts = torch.arange(12.0).view(3, 4)
    product, even = counts @ counts.T, torch.zeros(4).softmax(0)
    with jitter.Jitter(1):
        assert torch.equal(counts @ counts.T, product)
        assert torch.equal(torch.zeros(4).softmax(0), even)
        assert torch.ones(4, dtype=torch.int64).sum() == 4


def test_gradients_pass():
    x = torch.tensor([0.3, 0.7], requires_grad=True)
    with jitter.Jitter(1):
        x.exp().sum().backward()
    torch.testing.assert_close(x.grad, x.detach().exp())
