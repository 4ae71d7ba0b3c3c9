"""Tampering: a fixed, small case of each kind is noticed, and what is left out has its reason.

`make tamper` tries a sample of all places, or all of them.
"""

from __future__ import annotations

import random

import pytest

from press import ROOT
from tests.lies import FORM, SEAL, Lie, Project, told_by_form, told_by_outputs
from tests.mutants import EQUIVALENT, mutants
from tests.tamper import MODULES, rounds, try_lies, try_mutant

FAULTS = [mutant for name in MODULES for mutant in mutants(name)]
NAMES = {fault.name for fault in FAULTS}
SEED = 0


def slipped(lies: list[Lie]) -> list[str]:
    """Tell one lie of each kind, as many at once as can be, and name those not reported."""
    random.Random(SEED).shuffle(lies)
    kinds = {lie.kind for lie in lies}
    assert len(kinds) > 2
    found: list[str] = []
    while kinds:
        told: list[Lie] = []
        for lie in lies:
            if lie.kind in kinds and len(list(rounds([*told, lie]))) == 1:
                told.append(lie)
                kinds.remove(lie.kind)
        found += map(str, try_lies(told, SEED))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("run", [FORM, SEAL], ids=["form", "seal"])
def test_a_lie_of_each_kind_in_the_ledger_is_reported(run: tuple[str, ...]):
    assert slipped([lie for lie in told_by_form(Project(ROOT)) if lie.run == run]) == []


@pytest.mark.slow
def test_a_lie_of_each_kind_in_an_output_is_reported():
    project = Project(ROOT)
    notebook = next(name for name in project.notebooks if name.startswith("chapters/"))
    lies = [lie for lie in told_by_outputs(project, notebook) if lie.run != FORM]
    assert slipped(lies) == []


@pytest.mark.slow
def test_a_fault_in_labkit_is_noticed():
    fault = next(fault for fault in FAULTS if "q / scale" in fault.after)
    assert try_mutant(fault)


@pytest.mark.parametrize("name", EQUIVALENT)
def test_a_fault_that_is_left_out_is_one_that_would_be_tried(name: str):
    assert name in NAMES, "the code has changed: see whether the fault can be noticed now"
    assert EQUIVALENT[name].endswith(".")


def test_few_faults_are_left_out():
    assert len(EQUIVALENT) < len(NAMES) / 20
