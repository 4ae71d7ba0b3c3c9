"""One standard: rows agree with each other, and a word is read at one bar."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from labkit.ledger.claims import OWN, Bound, Claim, Compared, Convention
from labkit.ledger.nested import flat, shape
from labkit.ledger.verdicts import IN_ONE_READING

__all__ = [
    "READINGS",
    "both_hold",
    "hidden_failures",
    "lone_bars",
    "other_bars",
    "other_statistics",
    "read_readings",
    "uncontrolled",
    "unequal",
]

READINGS = Path(__file__).parent / "readings.yml"
FAILS = re.compile(r"\bfail(s|ed)?\b")
ALONE = "one row alone"


def read_readings() -> list[dict[str, Any]]:
    """Read the groups of words that are read alike, with their bars."""
    groups: list[dict[str, Any]] = yaml.safe_load(READINGS.read_text(encoding="utf-8"))
    return groups


def both_hold(claims: Sequence[Claim]) -> list[str]:
    """Name the pairs that contradict each other and both hold."""
    known = {claim.key: claim for claim in claims}
    named = [
        (claim, known[key])
        for claim in claims
        if isinstance(claim, Convention)
        for key in claim.against
        if key in known
    ]
    found = [*named, *(pair for pair in pairs(claims) if differ(*pair))]
    return [
        f"{a.key} and {b.key} contradict each other, and both hold"
        for a, b in found
        if a.verdict == b.verdict == "holds"
    ]


def unequal(claims: Sequence[Claim]) -> list[str]:
    """Name the pairs that say the same of one quantity, and have different verdicts."""
    return [
        f"{a.key} and {b.key} say the same of {a.quantity}, and one is {a.verdict}, the other "
        f"{b.verdict}"
        for a, b in pairs(claims)
        if a.statement == b.statement and a.verdict != b.verdict
    ]


def other_bars(claims: Sequence[Claim], readings: Sequence[dict[str, Any]]) -> list[str]:
    """Name the rows whose bound is not a bar of the word that they read, and words read twice."""
    bars = {word: group["bars"] for group in readings for word in group["words"]}
    words = [word for group in readings for word in group["words"]]
    twice = [f"{word} is read twice" for word in sorted(set(words)) if words.count(word) > 1]
    off = [
        f"{claim.key} reads {claim.reading!r} at {claim.statement}, not at one of its bars "
        f"{bars.get(claim.reading, [])}"
        for claim in claims
        if isinstance(claim, Bound)
        and claim.reading != OWN
        and claim.statement not in bars.get(claim.reading, [])
    ]
    return twice + off


def lone_bars(claims: Sequence[Claim], readings: Sequence[dict[str, Any]]) -> list[str]:
    """Name the groups that serve one row alone and do not say so, and those that wrongly say so."""
    rows = [claim.reading for claim in claims if isinstance(claim, Bound)]
    return [
        f"{group['name']} serves {count} rows: its `why` has to say {ALONE!r} where it is one"
        for group in readings
        for count in [sum(row in group["words"] for row in rows)]
        if (count == 1) != (ALONE in group["why"])
    ]


def other_statistics(claims: Sequence[Claim], readings: Sequence[dict[str, Any]]) -> list[str]:
    """Name the rows whose statistic is not that of the word that they read."""
    statistic = {word: group["statistic"] for group in readings for word in group["words"]}
    return [
        f"{claim.key} reads {claim.reading!r} by a {claim.statistic}, and its word is read by a "
        f"{statistic[claim.reading]}"
        for claim in claims
        if isinstance(claim, Bound)
        and claim.reading in statistic
        and claim.reading != OWN
        and claim.statistic != statistic[claim.reading]
    ]


def uncontrolled(claims: Sequence[Claim]) -> list[str]:
    """Name the rows that say something is learned, and were judged without a control."""
    return [
        f"{claim.key} says that something is learned, and no control was measured"
        for claim in claims
        if isinstance(claim, Compared) and claim.learned and claim.control is None
    ]


def hidden_failures(claims: Sequence[Claim]) -> list[str]:
    """Name the rows that hold although a reading fails, and those that hold in one reading and do
    not say which one fails."""
    silent = [
        f"{claim.key} holds, and its `why` tells of what fails: say so in `fails`"
        for claim in claims
        if claim.verdict == "holds" and FAILS.search(claim.why or "")
    ]
    unsaid = [
        f"{claim.key} holds in one reading: say in `fails` which one fails"
        for claim in claims
        if claim.verdict == IN_ONE_READING and not claim.fails
    ]
    return silent + unsaid


def pairs(claims: Sequence[Claim]) -> Iterator[tuple[Claim, Claim]]:
    """Run through the judged rows that are about one quantity, read in one way."""
    judged = [claim for claim in claims if claim.verdict not in (None, "untested")]
    for one, other in combinations([claim for claim in judged if claim.quantity], 2):
        if (one.quantity, reading(one)) == (other.quantity, reading(other)):
            yield one, other


def reading(claim: Claim) -> str | None:
    return claim.reading if isinstance(claim, Bound) else None


def differ(one: Claim, other: Claim) -> bool:
    """Say whether two rows state figures that cannot both be right."""
    stated = one.statement, other.statement
    bounded = isinstance(one, Bound) or isinstance(other, Bound)
    if bounded or None in stated or shape(stated[0]) != shape(stated[1]):
        return False
    both = [claim.places for claim in (one, other) if isinstance(claim, Compared)]
    places = [count for count in both if count is not None]
    if not places:
        return bool(stated[0] != stated[1])
    reach = 10.0 ** -min(places)
    return any(abs(a - b) > reach for a, b in zip(*map(flat, stated), strict=True))
