"""Right and wrong answers to the labs' exercises: what the checks are tested with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Exercise:
    """One exercise: its check, and answers that it must accept or reject."""

    check: Callable[[Any], None]
    right: dict[str, Any] = field(default_factory=dict)
    wrong: dict[str, tuple[str, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.check.__module__.rpartition('.')[2]}.{self.check.__name__}"

    def accept(self, how: str, answer: Any) -> None:
        """Note a right answer and how it goes about it."""
        self.right[how] = answer

    def reject(self, mistake: str, told: str, answer: Any) -> None:
        """Note a wrong answer, its mistake, and a pattern that the message must match."""
        self.wrong[mistake] = (told, answer)
