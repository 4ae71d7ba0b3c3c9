"""Install Chromium unless a browser is there: ``python -m press.install_browser``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from press.browser import find


def install() -> None:
    """Install Chromium: Debian's package where that is allowed, playwright's own elsewhere."""
    if shutil.which("apt-get") and (os.geteuid() == 0 or passwordless_sudo()):
        as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        subprocess.run([*as_root, "apt-get", "update", "-qq"], check=False)
        subprocess.run([*as_root, "apt-get", "install", "-y", "-qq", "chromium"], check=False)
    if find() is None:
        subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)


def passwordless_sudo() -> bool:
    """Say whether sudo works without asking."""
    if not shutil.which("sudo"):
        return False
    return subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0


def main() -> int:
    if find() is None:
        print("No Chrome or Chromium found: installing one.", flush=True)
        install()
    browser = find()
    if browser is None:
        print(
            "The page tests need a browser and none could be installed. Install Chromium or "
            "Google Chrome (Debian: apt-get install chromium), then run make test again.",
            file=sys.stderr,
        )
        return 1
    print(f"Browser: {browser}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
