"""The labs and a live figure in JupyterLab: a real server, a real browser, the keyboard."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Locator, Page, expect

from labkit.figures import live
from labkit.ledger.nested import flat
from press import ROOT
from press.notebooks import LABS, outputs, read
from tests.browser.looking import TAKES_LONG

pytestmark = TAKES_LONG
PATIENCE = 120  # seconds, for a machine that does other things as well
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # Cells out of sight are drawn too, so that they can be found.
    "notebook-extension/tracker": {"windowingMode": "none"},
}
V = [[3.0, 0.0], [0.0, 10.0], [5.0, 5.0]]
CELLS = [
    "from labkit.figures import live\nfigure = live.AttentionByHand()\nfigure",
    "print(figure.Q, figure.values())",
    f"figure.V = {V}",
]
GPT_CELLS = [
    "from labkit.figures import live\ngpt = live.SmallGPT()\ngpt",
    "print(gpt.story, gpt.heads_on[0][:2], gpt.query)",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve copies of the labs and a live figure, with settings and files of this test alone."""
    home = tmp_path_factory.mktemp("jupyter")
    shutil.copytree(ROOT / "labs", home / "labs")
    for notebook, sources in [("live", CELLS), ("gpt", GPT_CELLS)]:
        cells, metadata = list(map(new_code_cell, sources)), read(LABS[0]).metadata
        written = new_notebook(cells=cells, metadata=metadata)
        nbformat.write(written, home / "labs" / f"{notebook}.ipynb")
    for name, values in SETTINGS.items():
        file = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    own = {variable: str(home / folder) for variable, folder in folders.items()}
    port = free_port()
    options = f"--no-browser --allow-root --ServerApp.port={port} --ServerApp.port_retries=0"
    command = [sys.executable, "-m", "jupyterlab", *options.split()]
    command += [f"--ServerApp.root_dir={home / 'labs'}", "--IdentityProvider.token="]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(f"{address}/api", process, home / "log")
            yield address
        finally:
            process.terminate()
            process.wait(timeout=30)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_for(address: str, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    pytest.fail(f"JupyterLab does not answer:\n{log.read_text()[-2_000:]}")


def open_notebook(page: Page, server: str, notebook: str) -> None:
    page.set_default_timeout(1_000 * PATIENCE)
    expect.set_options(timeout=1_000 * PATIENCE)
    page.goto(f"{server}/lab/tree/{notebook}?reset")
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()


def run_all(page: Page, server: str, lab: str) -> Locator:
    """Open a lab, run all its cells, and return the line that tells the laboratory's numbers."""
    open_notebook(page, server, lab)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    told = page.locator(".jupyter-widgets [role=status]")
    told.scroll_into_view_if_needed()
    return told


def figure_title(page: Page) -> Locator:
    return page.locator(".jupyter-widgets .js-plotly-plot .gtitle")


def test_a_slider_moves_the_numbers_and_every_stub_invites(page: Page, server: str):
    told = run_all(page, server, "lab_01_scaling.ipynb")
    expect(figure_title(page)).to_contain_text("d_k = 64, 10 keys")
    before = told.inner_text()
    handle = page.locator(".jupyter-widgets [role=slider]").nth(1)
    handle.focus()
    handle.press("ArrowRight")
    expect(figure_title(page)).to_contain_text("d_k = 64, 11 keys")
    expect(told).not_to_have_text(before)

    invited = [o for o in outputs(read(LABS[0])) if "is still the stub." in o.get("text", "")]
    assert invited
    expect(page.get_by_text("is still the stub.")).to_have_count(len(invited))
    errors = page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']")
    expect(errors).to_have_count(0)


def test_a_mask_is_painted_by_keyboard(page: Page, server: str):
    told = run_all(page, server, "lab_02_causal_mask.ipynb")
    expect(told).to_contain_text("21 of 36 places are open, 0 of them in the future")
    page.get_by_title("query 0, key 0").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(told).to_contain_text("22 of 36 places are open, 1 of them in the future")
    expect(page.get_by_title("query 0, key 1")).to_have_text("1")


def run_cell(page: Page, place: int) -> Locator:
    """Run a cell and return it."""
    cell = page.locator(".jp-CodeCell").nth(place)
    cell.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    return cell


def test_a_live_figure_and_python_follow_each_other(page: Page, server: str):
    open_notebook(page, server, "live.ipynb")
    figure = run_cell(page, 0).locator(".live")
    known = live.AttentionByHand()
    typed = figure.locator('[data-trait="Q"][data-place="[0,0]"]')
    typed.fill("2.5")
    known.Q = [[2.5, 0], *known.Q[1:]]
    printed = run_cell(page, 1).locator(".jp-OutputArea-output")
    expect(printed).to_have_text(f"{known.Q} {known.values()}")

    run_cell(page, 2)
    expect(figure.locator('[data-trait="V"][data-place="[0,0]"]')).to_have_value("3")
    known.V = V
    shown = figure.locator('[data-values="outputs"] td:not(thead td)')
    expect(shown).to_have_text([f"{x:.7f}" for x in flat(known.values()["outputs"])])
    expect(typed).to_have_value("2.5")


def test_the_small_gpt_gets_its_weights_from_python(page: Page, server: str):
    open_notebook(page, server, "gpt.ipynb")
    figure = run_cell(page, 0).locator(".live")
    known = live.SmallGPT()
    figure.get_by_role("button", name="Load the model").press("Enter")
    expect(figure.get_by_role("button", name="Load")).to_have_count(0)
    known.story = "the box suits mia hill ."
    figure.locator("textarea").fill(known.story)
    figure.locator('[data-place="[0,1]"]').press("Space")
    known.heads_on = [[head != 1 for head in range(known.shape[1])], *known.heads_on[1:]]
    shown = figure.locator('[data-values="next word"] td:not(thead td)')
    expect(shown).to_have_text([f"{x:.7f}" for x in flat(known.values()["next word"])])
    printed = run_cell(page, 1).locator(".jp-OutputArea-output")
    expect(printed).to_have_text(f"{known.story} [True, False] {known.query}")
