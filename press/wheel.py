"""Build labkit's wheel: ``press.wheel FOLDER``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from labkit.figures.base import BUNDLES
from press import ROOT
from press.project import wheel_name


def build(folder: Path) -> Path:
    """Build the wheel in a folder, without asking a network, and return its path.

    Raises SystemExit if the live figures have not been bundled.
    """
    if not any(BUNDLES.glob("*.js")):
        raise SystemExit(
            f"{BUNDLES} must hold the live figures' bundles, which go into the wheel; it holds "
            "none. Make them: make setup"
        )
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # a module that is gone would still be in it
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    how = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([*pip, *how, str(ROOT)], check=True)
    return folder / wheel_name()


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
