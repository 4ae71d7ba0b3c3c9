"""The live figures' modules compute what labkit does: in many states, without a page."""

from __future__ import annotations

import base64
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from labkit.figures import live
from labkit.figures.base import SCRIPTS, Choice, Flags, LiveFigure, Matrix, Whole
from labkit.figures.broken_gpt import BUGS
from labkit.figures.stage_stories import HEADS, LAYERS
from labkit.ledger.nested import flat
from labkit.models.stories import Stories, decode
from press.node import NODE

RUNNER = Path(__file__).with_name("values.js")
STATES = 40
WORDS = 16
# The highest of what a state's own data bounds, and of what takes long.
MOST = {"sentence": 0, "layer": 1, "head": 2, "asking": 1, "query": 1, "key": 1, "draws": 50}


def one_of(trait: Any, name: str, dice: random.Random) -> Any:
    if isinstance(trait, Choice):
        return dice.choice(trait.options)
    if isinstance(trait, Whole):
        low, high = trait.options
        return dice.randint(low, min(high, MOST.get(name, high)))
    rows, columns = trait.size
    if isinstance(trait, Flags):
        return [[dice.random() < 0.5 for _ in range(columns)] for _ in range(rows)]
    return [[round(dice.uniform(-4, 4), 2) for _ in range(columns)] for _ in range(rows)]


def draw(figure: type[LiveFigure], start: dict[str, Any]) -> list[dict[str, Any]]:
    """Draw states, and a story of two words or more where the figure has one."""
    dice = random.Random(0)
    traits = {
        name: trait
        for name, trait in figure.class_traits().items()
        if isinstance(trait, (Choice, Whole, Matrix)) and name != "model"
    }
    states = [
        {name: one_of(trait, name, dice) for name, trait in traits.items()} for _ in range(STATES)
    ]
    if start.get("story"):
        for state, ids in zip(states, Stories.draw(STATES, WORDS, seed=0).ids, strict=True):
            state["story"] = decode(ids[: dice.randint(2, WORDS)])
    return states


def played(start: dict[str, Any], figure: str, states: list[dict[str, Any]]) -> list[dict]:
    given = {
        "scripts": SCRIPTS.as_uri(),
        "figure": figure,
        "start": start,
        "parcel": base64.b64encode(live.SmallGPT.parcel()).decode(),
        "states": states,
    }
    command = [NODE, "--no-warnings", RUNNER]
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, check=False, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(figure: type[LiveFigure], start: dict[str, Any], states: list[dict[str, Any]]) -> None:
    for state, told in zip(states, played(start, figure.name, states), strict=True):
        known = figure(**start | state).values()
        assert list(told) == list(known)
        for quantity, value in known.items():
            numbers = [float(number) for number in flat(told[quantity])]
            expected = pytest.approx(list(flat(value)), rel=1e-9, abs=1e-12, nan_ok=True)
            assert numbers == expected, (quantity, state)


@pytest.mark.parametrize("figure", live.FIGURES, ids=lambda figure: figure.name)
def test_a_module_computes_what_labkit_does(figure: type[LiveFigure]):
    start = figure().state()
    check(figure, start, draw(figure, start))


def test_the_stage_of_stories_computes_every_head_and_bug():
    start = live.Stage(model="stories").state()
    states = draw(live.Stage, start)
    cases = [(bug, layer, head) for bug in BUGS for layer in range(LAYERS) for head in range(HEADS)]
    for state, (bug, layer, head) in zip(states, cases, strict=False):
        state |= {"bug": bug, "layer": layer, "head": head}
    assert len(cases) <= len(states)
    check(live.Stage, start, states)
