"""Call a learner's answer with care, and say what is wrong with what comes back."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import signal
import sys
import sysconfig
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

SECONDS = 60.0  # for one call of an answer
MOMENT = 1e-3  # seconds; a timer of none would never ring
MOST_PRINTED = 2_000  # characters that one call may print
MOST_SHOWN = 16  # numbers of a tensor that a message writes out
FIRST_SEED = 2**40  # of an answer's calls: far from the seeds that examples are drawn with
STUB = ("super().__init__()", "raise NotImplementedError")  # lines of one
# Where code lies that is not the learner's: labkit, the standard library, installed packages.
LIBRARIES = (
    str(Path(__file__).parent.parent),
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
)


class Wrong(AssertionError):  # noqa: N818 (the name is what the learner reads)
    """An answer that is not right yet. Jupyter shows its message and no traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class NotYet(Wrong):
    """An exercise that nobody has begun, or one that calls such a one. Its check prints this."""

    def __init__(self, name: str, called_by: str = "") -> None:
        super().__init__(
            f"{called_by} calls {name}, which is still the stub.\n"
            f"Write {name}, or call something else in its place."
            if called_by
            else f"{name} is still the stub.\n"
            "Write your answer into the cell above, run that cell, then this one. A hint helps."
        )


def complaint(name: str, *, expected: str, happened: str, example: str = "") -> Wrong:
    """Make the error that says what was expected and what happened, on which example."""
    told = {"example": example, "expected": expected, "happened": happened}
    lines = [f"\n  {label}  {text}" for label, text in told.items() if text]
    return Wrong(f"{name} is not right yet." + "".join(lines))


def exercise(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """Make of a check what a lab's cell calls.

    PyTorch's settings are those of a fresh session while it runs, so that an answer is judged by
    itself: not by gradients that the learner turned off, or another default type. To begin is no
    mistake: a stub gets an invitation, where a wrong answer gets an error.
    """

    @functools.wraps(check)
    def judged(answer: Any) -> None:
        # PyTorch 2.9 cannot name its default device once that has been set back.
        dtype, device = torch.get_default_dtype(), torch.empty(0).device
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        try:
            with torch.inference_mode(False), torch.enable_grad():
                check(answer)
        except NotYet as invitation:
            print(invitation)
        finally:
            torch.set_default_dtype(dtype)
            torch.set_default_device(None if device == torch.device("cpu") else device)

    return judged


def right(name: str, remark: str) -> None:
    """Say in a line that an answer is right."""
    print(f"{name}: right. {remark}")


@dataclass(frozen=True)
class Outcome:
    """What came back from one call, and how to complain about it."""

    name: str
    arguments: Mapping[str, Any]
    value: Any
    part: str = "it"

    def demand(self, holds: bool | Tensor, expected: str, happened: str) -> None:
        """Raise Wrong with the call as the example, unless the condition holds."""
        if not holds:
            raise self.complaint(expected, happened)

    def complaint(self, expected: str, happened: str) -> Wrong:
        example = ", ".join(f"{name} = {show(value)}" for name, value in self.arguments.items())
        return complaint(self.name, expected=expected, happened=happened, example=example)

    def pair(self, *names: str) -> list[Outcome]:
        """Take several results apart; raise Wrong if there are not as many as names."""
        got = self.value
        fits = isinstance(got, (tuple, list)) and len(got) == len(names)
        came = f"{len(got)} of them" if isinstance(got, (tuple, list)) else kind(got)
        self.demand(fits, f"{len(names)} results: {', '.join(names)}", f"came {came}")
        return [
            Outcome(self.name, self.arguments, part, name)
            for name, part in zip(names, got, strict=True)
        ]

    def tensor(self, *shape: int, boolean: bool = False) -> Tensor:
        """Return the result as a boolean or float64 tensor without NaN, or raise Wrong."""
        x = self.value
        self.demand(isinstance(x, Tensor), f"{self.part} is a tensor", f"came {kind(x)}")
        self.demand(
            x.shape == shape, f"{self.part} has the shape {shape}", f"came {tuple(x.shape)}"
        )
        fits = x.dtype == torch.bool if boolean else x.is_floating_point()
        wanted = "boolean" if boolean else "a floating-point type"
        self.demand(fits, f"{self.part} is {wanted}", f"came {x.dtype}")
        x = x.detach().cpu()
        if boolean:
            return x
        bad = int(x.isnan().sum())
        self.demand(bad == 0, "a number in every place", f"{bad} of {x.numel()} are NaN: {show(x)}")
        return x.double()

    def number(self) -> float:
        """Return the result as a number that is not NaN, or raise Wrong."""
        x = single(self.value)
        fits = isinstance(x, (Real, Decimal)) and not isinstance(x, bool)
        self.demand(fits, f"{self.part} is a number", f"came {kind(self.value)}")
        try:
            number = float(x)
        except OverflowError as error:
            happened = "came one that no float holds, of more than 308 digits"
            raise self.complaint(f"{self.part} is a number of a sensible size", happened) from error
        self.demand(not math.isnan(number), f"{self.part} is a number", "came NaN")
        return number

    def truth(self) -> bool:
        """Return the result as True or False, or raise Wrong."""
        x = single(self.value)
        fits = isinstance(x, bool)
        self.demand(fits, f"{self.part} is True or False", f"came {kind(self.value)}")
        return x


@dataclass(frozen=True)
class Answer:
    """A learner's function, to be called by name of its arguments and with care.

    The arguments are handed over as copies and in order: what they are called is the learner's
    business. Random numbers drawn in a call leave the learner's own sequence alone.
    """

    name: str
    function: Callable[..., Any]
    seed: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        if self.function is None or self.function is ...:
            raise NotYet(self.name)
        if not callable(self.function):
            raise complaint(
                self.name,
                expected="a function",
                happened=f"came {kind(self.function)}; hand over the name, without brackets",
            )

    def __call__(self, **arguments: Any) -> Outcome:
        given = {name: copy(value) for name, value in arguments.items()}
        outcome = Outcome(self.name, arguments, None)
        self.fit(outcome)
        self.seed[0] += 1
        try:
            with torch.random.fork_rng(devices=[]), little_output():
                torch.default_generator.manual_seed(FIRST_SEED + self.seed[0])
                value = in_time(SECONDS, lambda: self.function(*given.values()))
        except NotImplementedError as error:
            raise self.unwritten(error, outcome) from error
        except TimeoutError as error:
            happened = (
                f"none came within {SECONDS:g} seconds; is there a loop without end, or far more "
                "work than is needed?"
            )
            raise outcome.complaint("an answer in good time", happened) from error
        except ChattyError as error:
            happened = f"one call printed more than {MOST_PRINTED} characters"
            raise outcome.complaint("a result, not a long print", happened) from error
        except (Exception, SystemExit) as error:
            raise outcome.complaint("it runs", blame(error)) from error
        for name, before in arguments.items():
            if isinstance(before, Tensor) and not same(before, given[name]):
                now = f"; now it is {show(given[name])}" if before.numel() <= MOST_SHOWN else ""
                happened = f"{name} was changed in place{now}"
                raise outcome.complaint("the arguments are left as they were", happened)
        return Outcome(self.name, arguments, value)

    def unwritten(self, error: NotImplementedError, outcome: Outcome) -> Wrong:
        """Say whose stub raised the error: this answer's, or that of something it calls."""
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename.startswith(LIBRARIES):
            return outcome.complaint("it runs", blame(error))
        written, stub = frame.f_code.co_qualname, frame.f_code.co_qualname.removesuffix(".__init__")
        if has_more_than_the_stub(frame.f_code):
            expected = f"{stub} is written, and nothing of the stub is left in it"
            happened = "it raises NotImplementedError: delete that line of the stub"
            return outcome.complaint(expected, happened)
        own = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        # A method that is left to write in a class that is begun is told by its name.
        if stub == own or (stub.startswith(f"{own}.") and written.endswith("__init__")):
            return NotYet(self.name)
        return NotYet(stub, called_by="" if stub.startswith(f"{own}.") else self.name)

    def fit(self, outcome: Outcome) -> None:
        """Raise Wrong if the function does not take as many arguments as it will get."""
        try:
            inspect.signature(self.function).bind(*outcome.arguments)
        except TypeError as error:
            expected = f"it takes {', '.join(outcome.arguments)}, in this order"
            raise complaint(self.name, expected=expected, happened=str(error)) from error
        except ValueError:  # some functions written in C do not tell
            return


class ChattyError(Exception):
    """An answer printed too much."""


class Limited:
    """A stream that passes a little text on and refuses a lot."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.left = stream, MOST_PRINTED

    def write(self, text: str) -> int:
        self.left -= len(text)
        if self.left < 0:
            raise ChattyError
        return self.stream.write(text)

    def flush(self) -> None:
        self.stream.flush()


@contextmanager
def little_output() -> Iterator[None]:
    """Pass on a little of what is printed; raise ChattyError if it is a lot."""
    limited = Limited(sys.stdout)
    with redirect_stdout(limited):
        yield
    if limited.left < 0:  # the answer caught the error itself
        raise ChattyError


def in_time(seconds: float, call: Callable[[], Any]) -> Any:
    """Return what call() does; in the main thread, raise TimeoutError if it takes longer.

    A timer signal interrupts it. Windows has none: there a learner interrupts the kernel. It is no
    context manager, because a signal that arrives between the end of a block and the manager would
    not be caught.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or not hasattr(signal, "setitimer"):
        return call()
    late = False

    def interrupt(signum: int, frame: FrameType | None) -> None:
        nonlocal late
        late = True
        raise KeyboardInterrupt  # which an answer's own `except Exception` does not catch

    before = signal.signal(signal.SIGALRM, interrupt)
    begun, (left, _) = time.monotonic(), signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        try:
            value = call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException as error:
        if late:
            raise TimeoutError from error
        raise
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
        if left:  # of a call that made this one
            passed = time.monotonic() - begun
            signal.setitimer(signal.ITIMER_REAL, max(left - passed, MOMENT))
    if late:  # the answer caught the interrupt itself
        raise TimeoutError
    return value


def blame(error: BaseException) -> str:
    """Tell an error of the answer's own: what it says, and on which of its lines it arose."""
    told = f"{type(error).__name__}: {error}".rstrip(": ")
    if "The shape of the mask" in told:
        told += "\n            a boolean index does not broadcast: expand it to the tensor's shape"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(LIBRARIES)]
    if not own:
        return told
    return f"{told}\n            line {own[-1].lineno} of {own[-1].name}:  {own[-1].line}"


def has_more_than_the_stub(code: CodeType) -> bool:
    """Say whether a function that raises NotImplementedError holds lines that a learner wrote."""
    try:
        function = ast.parse(textwrap.dedent(inspect.getsource(code))).body[0]
    except (OSError, SyntaxError, IndexError):
        return False
    return any(
        not isinstance(line, ast.Expr) or not isinstance(line.value, ast.Constant)
        for line in getattr(function, "body", [])
        if ast.unparse(line) not in STUB
    )


def copy(value: Any) -> Any:
    """Copy tensors; leave alone what a call cannot change by accident."""
    if isinstance(value, Tensor):
        return value.clone()
    if type(value) in (list, tuple):
        return type(value)(map(copy, value))
    if type(value) is dict:
        return {name: copy(part) for name, part in value.items()}
    return value


def same(a: Tensor, b: Tensor) -> bool:
    """Say whether two tensors are equal in shape, type and every number."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a, b) or torch.equal(a.nan_to_num(), b.nan_to_num())


def single(value: Any) -> Any:
    """Take the one number out of a tensor or an array of one; leave the rest alone."""
    shape = getattr(value, "shape", None)
    if hasattr(value, "item") and shape is not None and math.prod(shape) == 1:
        try:
            return value.item()
        except RuntimeError:  # on the device meta a tensor has no numbers
            return value
    return value


def near(a: Tensor, b: Any, within: float = 1e-4) -> bool:
    """Say whether all numbers of two tensors lie close together."""
    b = torch.as_tensor(b, dtype=torch.float64)
    return bool(torch.isclose(a, b, rtol=within, atol=within).all())


def recognise(x: Tensor, mistakes: Mapping[str, Tensor], within: float = 1e-4) -> str:
    """Name the mistake that gives this result, as the end of a sentence; nothing if none does."""
    alike = {
        told: y.shape == x.shape and near(x, y.detach(), within) for told, y in mistakes.items()
    }
    words = (told for told, found in alike.items() if found)
    return next((f"; {told}" for told in words), "")


def kind(value: Any) -> str:
    """Name what a value is, in the words of a learner."""
    if value is None:
        return "None; is there a return?"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and type {value.dtype}"
    if isinstance(value, tuple) and hasattr(value, "indices"):
        return f"values and indices, the two that {type(value).__name__} gives along a dim"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, torch.nn.Module):
        return f"a layer of the class {type(value).__name__}"
    name = type(value).__name__
    told = written(value, "{:,}".format if type(value) is int else repr)
    return f"{told}, which is {'an' if name[0] in 'aeiou' else 'a'} {name}"


def show(value: Any) -> str:
    """Write a value for a message: small tensors in full, large ones by their shape."""
    if isinstance(value, Tensor):
        if value.numel() > MOST_SHOWN:
            return f"a tensor of shape {tuple(value.shape)}"
        return show(value.tolist())
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(show, value)) + "]"
    if isinstance(value, torch.nn.Module):
        return f"a {type(value).__name__}"
    if isinstance(value, float):
        usual = value == 0 or 1e-3 <= abs(value) < 1e6
        return f"{value:.3f}".rstrip("0").removesuffix(".") if usual else f"{value:.4g}"
    return getattr(value, "__name__", None) or written(value, str)


def apart(a: float, b: float) -> tuple[str, str]:
    """Write two different numbers with as many digits as it takes to tell one from the other.

    >>> apart(0.93812, 0.93847)
    ('0.9381', '0.9385')
    """
    for digits in range(3, 17):
        written_a, written_b = f"{a:.{digits}g}", f"{b:.{digits}g}"
        if written_a != written_b:
            break
    return written_a, written_b


def written(value: Any, how: Callable[[Any], str]) -> str:
    """Write a value, even a number so long that Python refuses to."""
    try:
        return how(value)
    except ValueError:
        return "a number of more than 4,300 digits"
