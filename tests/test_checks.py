"""The labs' checks: every right answer is accepted, every wrong one rejected for its reason.

And every sentence that a check can say is said to somebody: a complaint that no answer provokes is
one that nobody has tried.
"""

from __future__ import annotations

import ast
import io
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labkit import causal_mask, labs
from labkit.labs import NotYet, Wrong, guard
from labkit.labs.bug_zoo import check as bug_zoo
from labkit.labs.multi_head_attention import check as multi_head_attention
from labkit.labs.tiles_and_ranks import check as tiles_and_ranks
from press import jitter
from press.labs import TOPICS
from press.notebooks import read
from tests.answers import Exercise, exercises

pytestmark = pytest.mark.slow

EXERCISES = exercises()
FUNCTIONS = [exercise for exercise in EXERCISES if callable(next(iter(exercise.right.values())))]
LABS = Path(labs.__file__).parent
# Nor is what moves bits the learner's own code: an error that passes it is told of its caller.
guard.LIBRARIES += (str(Path(jitter.__file__).parent),)
PATIENCE = tiles_and_ranks.PATIENCE
torch.set_num_threads(1)  # the examples are small: more threads cost more than they give

# Their answers take many seconds. The printed solutions are tried each time, in tests/test_labs.py.
LONG = {
    "bug_zoo.dropout_is_sound",
    "head_hunt.cosine_without",
    "output_projection.trained",
    "your_own_gpt.train",
    "your_own_gpt.trained",
}


def weekly(parameter: Any, name: str) -> Any:
    """Leave to the weekly run what is long, or the topic of something long."""
    long = name in LONG or any(one.startswith(f"{name}.") for one in LONG)
    return pytest.param(parameter, marks=pytest.mark.weekly if long else (), id=name)


# The name of a topic in a test's name keeps the test with that topic's others: see conftest.py.
each = pytest.mark.parametrize("exercise", [weekly(e, e.name) for e in EXERCISES])
each_function = pytest.mark.parametrize("exercise", [weekly(e, e.name) for e in FUNCTIONS])
each_topic = pytest.mark.parametrize("topic", [weekly(topic, topic) for topic in TOPICS])


def judged(check: Callable[[Any], None], answer: Any) -> tuple[Wrong | None, str]:
    """Return how a check rejects an answer, or None if it accepts it, and what it prints."""
    torch.manual_seed(time.time_ns())  # a check must not depend on the learner's random numbers
    with redirect_stdout(io.StringIO()) as printed:
        try:
            check(answer)
        except Wrong as error:
            return error, printed.getvalue()
    return None, printed.getvalue()


def rejection(check: Callable[[Any], None], answer: Any) -> Wrong:
    error, _ = judged(check, answer)
    assert error is not None
    return error


@cache
def acceptances(exercise: Exercise) -> dict[str, tuple[Wrong | None, str]]:
    return {how: judged(exercise.check, answer) for how, answer in exercise.right.items()}


@cache
def rejections(exercise: Exercise) -> dict[str, Wrong | None]:
    told = {}
    with pytest.MonkeyPatch.context() as patch:
        for mistake, (_, answer) in exercise.wrong.items():
            hopeless = getattr(answer, "hopeless", False)  # the ranks' patience is of no use
            patch.setattr(tiles_and_ranks, "PATIENCE", 1.0 if hopeless else PATIENCE)
            told[mistake] = judged(exercise.check, answer)[0]
    return told


def test_no_exercise_is_collected_twice():
    names = Counter(exercise.name for exercise in EXERCISES)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.with_bits
@each
def test_right_answers_are_accepted(exercise: Exercise):
    assert exercise.right
    told = acceptances(exercise)
    assert {how: error for how, (error, _) in told.items() if error} == {}
    assert {how: line for how, (_, line) in told.items() if line.count("\n") != 1} == {}
    assert all(": right. " in line for _, line in told.values())


@pytest.mark.with_bits
@each
def test_wrong_answers_are_rejected_for_their_reason(exercise: Exercise):
    missed = {
        mistake: told
        for mistake, told in rejections(exercise).items()
        if told is None or not re.search(exercise.wrong[mistake][0], str(told), re.DOTALL)
    }
    assert missed == {}


@pytest.mark.with_bits
@each
def test_a_message_says_what_was_expected_and_what_happened(exercise: Exercise):
    for told in map(str, rejections(exercise).values()):
        assert "\n  expected  " in told
        assert "\n  happened  " in told
        assert len(told) < 700, "short enough to be read"


def stub(*arguments: Any) -> None:
    raise NotImplementedError


def not_begun(exercise: Exercise) -> list[Any]:
    return [None, ..., stub] if exercise in FUNCTIONS else [None, ...]


@each
def test_an_exercise_not_begun_is_told_kindly(exercise: Exercise):
    for answer in not_begun(exercise):
        error, printed = judged(exercise.check, answer)
        assert error is None
        assert "still the stub" in printed


# What an exercise does with an answer that is of no use to it: all calls go through the guard, and
# the first thing asked of a result is its kind.


def returns(change: Callable[[Any], Any]) -> Callable[[Callable], Callable]:
    def wrap(right: Callable) -> Callable:
        return lambda *arguments: change(right(*arguments))

    return wrap


def unfit(result: Any) -> Any:
    """Make NaN of a number, of a boolean something that is no boolean."""
    if isinstance(result, (tuple, list)):
        return [unfit(part) for part in result]
    if isinstance(result, torch.Tensor) and result.dtype != torch.bool:
        return result * float("nan")
    return float("nan")


def divides_by_zero(right: Callable) -> Callable:
    def answer(*arguments: Any) -> Any:
        return 1 / 0  # the line to be named

    return answer


USELESS = {
    "divides by zero": (divides_by_zero, "return 1 / 0  # the line to be named"),
    "returns nothing": (returns(lambda result: None), "None; is there a return"),
    "returns a text": (returns(str), "which is a str"),
    "returns a dictionary": (returns(lambda result: {"result": result}), "which is a dict"),
    "returns a tuple of one": (returns(lambda result: (result,)), "a tuple of 1|1 of them"),
    "returns NaN": (returns(unfit), "NaN|nan"),
    "returns a tensor of three axes too many": (
        returns(lambda result: torch.zeros(1, 1, 1, 2, 2, 2)),
        r"\(1, 1, 1, 2, 2, 2\)",
    ),
}


@each_function
def test_a_useless_answer_is_named(exercise: Exercise):
    right = next(iter(exercise.right.values()))
    told = {kind: rejection(exercise.check, make(right)) for kind, (make, _) in USELESS.items()}
    missed = {kind: e for kind, e in told.items() if not re.search(USELESS[kind][1], str(e))}
    assert missed == {}


# What the guard does for all of them, on one small exercise


def doubled(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Check a function that doubles two numbers."""
    outcome = guard.Answer("doubled", function)(x=torch.tensor([1.0, 2.0]))
    outcome.demand(guard.near(outcome.tensor(2), [2, 4]), "twice as much", "came something else")
    guard.right("doubled", "Twice as much.")


def twice(x: torch.Tensor) -> torch.Tensor:
    return x + x


TOO_LONG = 10.0  # seconds; not for ever, so that a guard that waits fails its test


def does_not_end(x: torch.Tensor) -> torch.Tensor:
    begun = time.monotonic()
    while time.monotonic() < begun + TOO_LONG:
        pass


def sleeps(x: torch.Tensor) -> torch.Tensor:
    time.sleep(TOO_LONG)


def hides_the_interrupt(x: torch.Tensor) -> torch.Tensor:
    try:
        sleeps(x)
    except BaseException:
        return 2 * x


def prints_a_lot(x: torch.Tensor) -> torch.Tensor:
    for _ in range(1_000):
        print("still here")
    return 2 * x


def hides_its_print(x: torch.Tensor) -> torch.Tensor:
    try:
        return prints_a_lot(x)
    except Exception:
        return 2 * x


def calls_a_stub(x: torch.Tensor) -> torch.Tensor:
    return stub(x)


def keeps_the_stubs_line(x: torch.Tensor) -> torch.Tensor:
    """Double what comes."""
    raise NotImplementedError
    return 2 * x


LATE = "within 0.3 seconds"
LONG = "more than 2000 characters"
GUARDED = {
    "loops for ever": (does_not_end, LATE),
    "sleeps": (sleeps, LATE),
    "catches the interrupt": (hides_the_interrupt, LATE),
    "prints a lot": (prints_a_lot, LONG),
    "catches the end of its print": (hides_its_print, LONG),
    "changes its input": (lambda x: x.mul_(2), r"x was changed in place; now it is \[2, 4\]"),
    "leaves the program": (lambda x: sys.exit("bye"), "SystemExit: bye"),
    "divides by zero": (divides_by_zero(stub), "ZeroDivisionError: division by zero"),
    "indexes by a mask that broadcasts": (
        lambda x: x[None].expand(3, 2)[x[None] > 1],
        "does not broadcast: expand it",
    ),
    "keeps the stub's line": (keeps_the_stubs_line, "delete that line of the stub"),
    "calls a stub": (calls_a_stub, "^doubled calls stub, which is still the stub"),
    "is no function": (torch.tensor([2.0, 4.0]), "hand over the name, without brackets"),
    "takes nothing": (lambda: torch.tensor([2.0, 4.0]), "it takes x, in this order"),
    "returns nothing": (lambda x: None, "None; is there a return"),
    "returns a list": (lambda x: [2, 4], "a list of 2"),
    "forgets .values": (lambda x: x.max(dim=0), "came values and indices, the two that max gives"),
    "returns too much": (lambda x: torch.cat([x, x]), r"shape \(2,\).*came \(4,\)"),
    "returns whole numbers": (lambda x: 2 * x.long(), "a floating-point type"),
    "returns NaN": (lambda x: 0 * x / 0, "2 of 2 are NaN"),
    "returns something else": (lambda x: 3 * x, "came something else"),
}


def on_guard(kind: str) -> Wrong:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "SECONDS", 0.3)
        return rejection(doubled, GUARDED[kind][0])


def test_a_right_answer_passes_the_guard():
    assert judged(doubled, twice) == (None, "doubled: right. Twice as much.\n")


HAS_TIMER = hasattr(signal, "setitimer")  # Windows has none


@pytest.mark.parametrize(
    "kind", [kind for kind in GUARDED if HAS_TIMER or GUARDED[kind][1] != LATE]
)
def test_the_guard_names(kind: str):
    assert re.search(GUARDED[kind][1], str(on_guard(kind)), re.DOTALL)


def taken(take: Callable[[guard.Outcome], Any]) -> Callable[[Any], None]:
    """Make a check of what a function's result can be taken for."""
    return lambda function: take(guard.Answer("taken", function)(x=1))


pair = taken(lambda outcome: outcome.pair("sum", "difference"))
number, truth = taken(guard.Outcome.number), taken(guard.Outcome.truth)
TAKEN = {
    "nothing yet": (number, None, "^taken is still the stub"),
    "one for two": (pair, lambda x: (x,), "2 results: sum, difference\n.*came 1 of them"),
    "a text for a number": (number, lambda x: "1", "it is a number\n.*came '1', which is a str"),
    "NaN for a number": (number, lambda x: float("nan"), "it is a number\n.*came NaN"),
    "a huge number": (number, lambda x: 10**400, "of a sensible size\n.*more than 308 digits"),
    "a number for a truth": (truth, lambda x: 1, "it is True or False\n.*came 1, which is an int"),
    "a huge truth": (truth, lambda x: 10**5000, "came a number of more than 4,300 digits"),
    "a layer for a truth": (truth, lambda x: torch.nn.ReLU(), "a layer of the class ReLU"),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_what_a_result_cannot_be_taken_for_is_named(kind: str):
    check, answer, told = TAKEN[kind]
    assert re.search(told, str(rejection(check, answer)), re.DOTALL)


def test_an_answer_that_calls_a_stub_is_told_which():
    def split(x: Any) -> Any:
        raise NotImplementedError

    class Layer(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return split(x)

    class Empty(torch.nn.Module):
        """Without forward, for which PyTorch raises the same error."""

    class Begun(torch.nn.Module):
        def __init__(self, d_model: Any) -> None:
            super().__init__()
            self.width = d_model

        def forward(self, x: Any) -> Any:
            raise NotImplementedError

    class Unbegun(torch.nn.Module):
        def __init__(self, d_model: Any) -> None:
            super().__init__()
            raise NotImplementedError

    with pytest.raises(NotYet, match=r"^Layer calls .*split, which is still the stub\.\nWrite"):
        guard.Answer("Layer", Layer())(x=0)
    with pytest.raises(NotYet, match=r"^[\w.<>]*Begun\.forward is still the stub"):
        guard.Answer("Layer", Begun(8))(x=0)
    with pytest.raises(NotYet, match=r"^Layer is still the stub"):
        guard.Answer("Layer", Unbegun)(d_model=8)
    with pytest.raises(NotYet, match=r"^split is still the stub"):
        guard.Answer("split", split)(x=0)
    with pytest.raises(Wrong, match=r"expected  it runs\n.*missing the required") as caught:
        guard.Answer("Layer", Empty())(x=0)
    assert not isinstance(caught.value, NotYet)


@pytest.mark.skipif(not HAS_TIMER, reason="no timer signal")
def test_a_late_answer_ends_a_call_within_a_call():
    def calls_another(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(TimeoutError):
            guard.in_time(0.1, lambda: sleeps(x))
        sleeps(x)

    with pytest.raises(TimeoutError):
        guard.in_time(0.3, lambda: calls_another(torch.ones(1)))
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_little_print_is_passed_on(capsys: pytest.CaptureFixture):
    answer = guard.Answer("f", lambda x: print("looking at", x))
    answer(x=3)
    assert capsys.readouterr().out == "looking at 3\n"


def test_an_own_error_is_shown_on_its_own_line():
    told = on_guard("divides by zero")
    assert "of answer:  return 1 / 0" in str(told)
    assert isinstance(told.__cause__, ZeroDivisionError)


def test_jupyter_shows_the_message_alone():
    told = on_guard("returns nothing")
    assert told._render_traceback_() == [f"Wrong: {told}"]


def test_a_keyboard_interrupt_of_the_learner_is_left_alone():
    def interrupted(x: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard.Answer("f", interrupted)(x=1)


def test_what_the_learner_set_does_not_count():
    seen = []

    @guard.exercise
    def check(answer: Any) -> None:
        seen.append((torch.ones(1).dtype, torch.is_grad_enabled(), torch.ones(1).device.type))

    try:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        with torch.inference_mode():
            check(None)
            assert torch.is_inference_mode_enabled()
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_default_device() == torch.device("meta")
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
    assert seen == [(torch.float32, True, "cpu")]


def test_every_check_runs_in_a_fresh_session():
    assert [e.name for e in EXERCISES if not hasattr(e.check, "__wrapped__")] == []


@pytest.mark.parametrize("one", [1.5, torch.tensor([[1.5]]), np.float32(1.5), np.array([1.5])])
def test_a_number_is_taken_as_it_comes(one: Any):
    assert guard.Outcome("f", {}, one).number() == 1.5


def test_the_learners_random_numbers_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    judged_with = guard.Answer("f", lambda x: torch.rand(100))
    judged_with(x=1)
    assert torch.equal(torch.rand(3), expected)


# Every sentence is said to somebody


@cache
def told_in(topic: str) -> tuple[list[Wrong], list[str]]:
    """Return all rejections by a lab's checks, and all that these checks say, right and wrong."""
    of_topic = [exercise for exercise in EXERCISES if exercise.name.startswith(f"{topic}.")]
    errors = [error for exercise in of_topic for error in rejections(exercise).values() if error]
    errors += [rejection(e.check.__wrapped__, a) for e in of_topic for a in not_begun(e)]
    printed = [line for exercise in of_topic for _, line in acceptances(exercise).values()]
    return errors, [*(f"{error}\n" for error in errors), *printed]


def places_of(error: BaseException | None) -> Iterator[tuple[str, int]]:
    """List where in the checks an error was raised, and those that led to it; file and line.

    A demand is made where it is called: that is the line which holds the sentence.
    """
    while error is not None:
        entry = error.__traceback__
        while entry is not None:
            inner, code = entry.tb_next, entry.tb_frame.f_code
            if inner is None or inner.tb_frame.f_code is guard.Outcome.demand.__code__:
                yield code.co_filename, entry.tb_lineno
            entry = inner
        error = error.__cause__


def complaints(path: Path) -> Iterator[ast.AST]:
    """List the places at which a module of checks complains: its demands, and what it raises."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(attr="demand")) | ast.Raise(exc=ast.expr()):
                yield node


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """List the words that a module's functions hold, each with its line and as a pattern.

    A word alone is a name, what a method is called on is data, and a docstring is for readers of
    the code.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = {id(node): node for function in functions for node in ast.walk(function)}
    for node in list(inside.values()):
        match node:
            case ast.JoinedStr(values=parts):
                dropped = parts
            case ast.FormattedValue(format_spec=ast.JoinedStr() as spec):
                dropped = [spec]
            case ast.Attribute(value=value) | ast.Expr(value=value):
                dropped = [value]
            case _:
                continue
        for part in dropped:
            if not isinstance(part, (ast.FormattedValue, ast.Call)):
                inside.pop(id(part), None)
    for node in inside.values():
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        words = [part.value if isinstance(part, ast.Constant) else None for part in parts]
        if any(isinstance(word, str) and " " in word.strip() for word in words):
            pattern = ".*".join(re.escape(word) if word else "" for word in words)
            yield node.lineno, pattern.lstrip(".*")  # a search begins anywhere


def silent_places(path: Path, errors: list[Wrong], said: list[str]) -> list[str]:
    """List the complaints of a module that none of the errors is, and the words never said."""
    hit = {line for error in errors for file, line in places_of(error) if file == str(path)}
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in complaints(path)
        if hit.isdisjoint(range(node.lineno, node.end_lineno + 1))
    ] + [
        f"line {line}: {pattern}"
        for line, pattern in sentences(path)
        if not any(re.search(pattern, text, re.DOTALL) for text in said)
    ]


def test_without_the_model_its_check_says_so(monkeypatch: pytest.MonkeyPatch):
    def missing() -> None:
        raise ModuleNotFoundError("its package is not installed")

    monkeypatch.setattr(multi_head_attention, "load_encoder", missing)
    right = next(e for e in EXERCISES if e.check is multi_head_attention.pretrained).right
    error, printed = judged(multi_head_attention.pretrained, right["copied"])
    assert error is None
    assert printed == (
        "from_torch: not tried on the pretrained model: its package is not installed\n"
    )


NO_GLOO = (
    "ring_attention: not tried: this PyTorch was built without the engine gloo, "
    "which its builds for Linux and macOS have"
)


def test_without_gloo_the_ring_is_not_tried(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(torch.distributed, "ProcessGroupGloo")
    exercise = next(e for e in EXERCISES if e.check is tiles_and_ranks.ring_attention)
    error, printed = judged(exercise.check, next(iter(exercise.right.values())))
    assert error is None
    assert printed == f"{NO_GLOO}\n"


@pytest.mark.parametrize("example", [x for x in tiles_and_ranks.TILES if x[-1] == "any"][:2])
def test_the_first_tiles_and_ranks_tell_every_named_cause_from_the_others(example: Any):
    *sizes, block_q, block_k, is_causal, what = example
    q, k, v = tiles_and_ranks.drawn(tiles_and_ranks.TILES.index(example), tuple(sizes), what)
    may = causal_mask(q.shape[2], k.shape[2])
    if not is_causal:
        may = torch.ones_like(may)
    known = tiles_and_ranks.wrong_tiles(q, k, v, may, block_q, block_k)
    alike = [pair for pair in combinations(known, 2) if guard.near(*(known[one] for one in pair))]
    assert alike == []


NOT_AN_ANSWERS = {  # said of what is installed
    "from_torch:\\ not\\ tried\\ on\\ the\\ pretrained\\ model:\\ .*",
    re.escape(NO_GLOO),
}


@pytest.mark.with_bits
@each_topic
def test_every_sentence_of_a_check_is_provoked(topic: str):
    path = LABS / topic / "check.py"
    silent = silent_places(path, *told_in(topic))
    assert [place for place in silent if place.split(": ", 1)[1] not in NOT_AN_ANSWERS] == []


@pytest.mark.weekly
@pytest.mark.parametrize("topic", ["bug_zoo"])
def test_every_sentence_of_a_zoos_judge_is_provoked(topic: str):
    assert silent_places(LABS / "zoo.py", *told_in(topic)) == []


def test_every_sentence_of_the_guard_is_provoked():
    errors = [on_guard(kind) for kind in GUARDED]
    errors += [rejection(check, answer) for check, answer, _ in TAKEN.values()]
    said = [*map(str, errors), judged(doubled, twice)[1]]
    assert silent_places(LABS / "guard.py", errors, said) == []


@pytest.mark.weekly
@pytest.mark.parametrize("topic", ["bug_zoo"])
def test_every_bug_gets_past_somebody(monkeypatch: pytest.MonkeyPatch, topic: str):
    told = "\n".join(told_in(topic)[1])  # before the judge is taken away
    bugs = []
    monkeypatch.setattr(
        bug_zoo, "judge", lambda answer, argument, sound, unsound: bugs.extend(unsound)
    )
    for exercise in EXERCISES:
        if exercise.check.__module__ == bug_zoo.__name__:
            exercise.check(stub)
    assert [
        bug for bug in bugs if not re.search(f"- {re.escape(bug.__doc__)}( \\(|\n)", told)
    ] == []
    opening = read(TOPICS[topic]).cells[0].source
    assert f"seven tests, and they find {len(bugs)} bugs that raise nothing" in opening
