"""Which tests are run and which share a process, and how tests run with their bits moved."""

from __future__ import annotations

import re
from collections.abc import Iterator

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

# How long a test may take says nothing of what it tests: a busy machine is slow.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


class ByTopic(LoadScopeScheduling):
    """What shares much stays together; all other tests are handed out one by one.

    That is the tests of a topic's checks, which share answers, and those of tampering, which share
    a process that has loaded PyTorch.
    """

    def _split_scope(self, nodeid: str) -> str:
        topic = re.search(r"test_checks\.py::.*\[(\w+)[.\]]|(test_tamper)\.py", nodeid)
        return topic[topic.lastindex] if topic else nodeid


# The mark xdist_group would do, but xdist 3.8 overlooks it (pytest-dev/pytest-xdist, issue 1386).
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByTopic | None:
    return ByTopic(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--move-bits",
        type=int,
        metavar="SEED",
        help="move the last bits of products and softmax, anew at each call, as other machines do",
    )
    parser.addoption(
        "--weekly", action="store_true", help="run what only the weekly run needs, too"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--weekly"):
        return
    reasons = {"weekly": "run once a week: make unit ALL=1"}
    if config.getoption("--move-bits") is None:
        reasons["with_bits"] = "run by make bits"
    for item in items:
        for mark, reason in reasons.items():
            if item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    seed = item.config.getoption("--move-bits")
    if seed is None or item.get_closest_marker("exact") is not None:
        return (yield)
    # It imports PyTorch, which the process that only hands out the tests does without.
    from press.jitter import Jitter

    with Jitter(seed, anew=True):
        return (yield)
