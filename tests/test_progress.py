"""The progress bar: there for a reader in Jupyter, absent from a stored notebook."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from labkit.models.progress import progress

pytestmark = pytest.mark.slow

CELL = """
from labkit.models.progress import progress
total = sum(progress(range(3), "adding"))
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel()
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def shown(kernel: BlockingKernelClient, *, front_end: bool) -> list[str]:
    """Run the cell as a front end or as a program does; list what the cell put out."""
    messages: list[dict] = []
    kernel.execute_interactive(
        CELL, allow_stdin=front_end, timeout=60, output_hook=messages.append, stop_on_error=False
    )
    noise = ("status", "execute_input")
    return [f"{m['msg_type']} {m['content']}" for m in messages if m["msg_type"] not in noise]


def test_a_reader_sees_a_bar(kernel: BlockingKernelClient):
    assert any("adding" in message for message in shown(kernel, front_end=True))


def test_a_program_that_executes_notebooks_stores_nothing(kernel: BlockingKernelClient):
    assert shown(kernel, front_end=False) == []


@pytest.mark.parametrize("terminal", [True, False])
def test_outside_jupyter_a_terminal_decides(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert list(progress("abc", "spelling")) == ["a", "b", "c"]
    assert ("spelling" in capsys.readouterr().err) == terminal
