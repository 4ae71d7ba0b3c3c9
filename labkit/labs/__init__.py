"""What the labs ask of an answer: one module a lab, one function an exercise.

A check takes the learner's function or value. If it is right, it says so in a line. If not, it
raises :class:`Wrong` with what was expected to hold and what happened instead, on a small
example. It judges what an answer does, not how it is written.
"""

from labkit.labs.guard import NotYet, Wrong

__all__ = ["NotYet", "Wrong"]
