"""Ask git, and load nothing else for it: what only looks at stamps is to take a moment."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git(root: Path, *arguments: str) -> str:
    """Run git in a checkout and return what it prints; raise CalledProcessError if it fails."""
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout
