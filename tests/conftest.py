"""Which tests share a process, where several share the tests, and tests with their bits moved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from xdist.scheduler import LoadScopeScheduling

from press.jitter import Jitter


class ByTopic(LoadScopeScheduling):
    """The tests of a topic's checks stay together, all others are handed out one by one."""

    def _split_scope(self, nodeid: str) -> str:
        topic = re.search(r"test_checks\.py::.*\[(\w+)[.\]]", nodeid)
        return topic[1] if topic else nodeid


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    seed = item.config.getoption("--move-bits")
    still = seed is None or item.get_closest_marker("exact") is not None
    with nullcontext() if still else Jitter(seed, anew=True):
        return (yield)
