"""Which tests share a process, where several processes share the tests."""

from __future__ import annotations

import re

import pytest
from xdist.scheduler import LoadScopeScheduling


class ByTopic(LoadScopeScheduling):
    """The tests of a topic's checks stay together, all others are handed out one by one."""

    def _split_scope(self, nodeid: str) -> str:
        topic = re.search(r"test_checks\.py::.*\[(\w+)[.\]]", nodeid)
        return topic[1] if topic else nodeid


# The mark xdist_group would do, but xdist 3.8 overlooks it (pytest-dev/pytest-xdist, issue 1386).
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByTopic | None:
    return ByTopic(config, log) if config.getoption("dist") == "loadgroup" else None
