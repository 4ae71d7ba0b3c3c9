"""Tampering: a fixed, small case of each kind is noticed, and what is left out has its reason.

`make tamper` tries a sample of all places, or all of them.
"""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest

from press import ROOT
from tests.lies import FORM, SEAL, Lie, Project, told_by_form, told_by_outputs
from tests.mutants import EQUIVALENT, mutants
from tests.tamper import MODULES, rounds, try_lies, try_mutant
from tests.test_seal import seal, seals

FAULTS = [mutant for name in MODULES for mutant in mutants(name)]
NAMES = {fault.name for fault in FAULTS}
SEED = 0
# Short, and its claims have all that a page and the ledger can show of one, but for a percentile.
NOTEBOOK = "chapters/02_why_sqrt_d_k.ipynb"


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


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(ROOT)


@pytest.mark.weekly
def test_a_lie_of_each_kind_in_the_ledger_is_reported(project: Project):
    assert slipped([lie for lie in told_by_form(project) if lie.run == FORM]) == []


def is_sealed(project: Project, document: str, folder: Path) -> bool:
    project.write_ledger(document, folder)
    return seal(document, folder) == seals()[document]


@pytest.mark.weekly
def test_a_lie_of_each_kind_breaks_the_seal(project: Project, tmp_path: Path):
    assert all(is_sealed(project, document, tmp_path) for document in project.ledgers)
    lies = [lie for lie in told_by_form(project) if lie.run == SEAL]
    random.Random(SEED).shuffle(lies)
    for lie in {lie.kind: lie for lie in lies}.values():
        [document] = lie.owners
        lying = copy.copy(project)
        lying.ledgers = {document: copy.deepcopy(project.ledgers[document])}
        lie.tell(lying, random.Random(SEED))
        assert not is_sealed(lying, document, tmp_path), str(lie)


@pytest.mark.weekly
def test_a_lie_of_each_kind_in_an_output_is_reported(project: Project):
    lies = [lie for lie in told_by_outputs(project, NOTEBOOK) if lie.run != FORM]
    assert {"verdict, in ledger and page", "value, in ledger and page"} < {lie.kind for lie in lies}
    assert slipped(lies) == []


@pytest.mark.weekly
def test_a_fault_in_labkit_is_noticed():
    fault = next(fault for fault in FAULTS if "q / scale" in fault.after)
    assert try_mutant(fault)


@pytest.mark.parametrize("name", EQUIVALENT)
def test_a_fault_that_is_left_out_is_one_that_would_be_tried(name: str):
    assert name in NAMES, "the code has changed: see whether the fault can be noticed now"
    assert EQUIVALENT[name].endswith(".")


def test_few_faults_are_left_out():
    assert len(EQUIVALENT) < len(NAMES) / 20
