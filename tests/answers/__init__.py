"""Right and wrong answers to the labs' exercises: what the checks are tested with."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(eq=False)
class Exercise:
    """One exercise: its check, and answers that it must accept or reject."""

    check: Callable[[Any], None]
    right: dict[str, Any] = field(default_factory=dict)
    wrong: dict[str, tuple[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.check.__module__.split('.')[-2]}.{self.check.__name__}"

    def accept(self, how: str, answer: Any) -> None:
        """Note a right answer and how it goes about it."""
        assert how not in self.right, f"{self.name} has two right answers called {how!r}"
        self.right[how] = answer

    def reject(self, mistake: str, told: str, answer: Any) -> None:
        """Note a wrong answer, its mistake, and a pattern that the message must match."""
        assert mistake not in self.wrong, f"{self.name} has two mistakes called {mistake!r}"
        self.wrong[mistake] = (told, answer)


def exercises() -> list[Exercise]:
    """List the exercises of all modules here, each once, however many names it has there."""
    modules = [
        import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)
    ]
    values = [value for module in modules for value in vars(module).values()]
    return list(dict.fromkeys(value for value in values if isinstance(value, Exercise)))
