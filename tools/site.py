"""Put a site together from the archives of its releases: ``site.py RELEASES SITE``.

RELEASES holds a folder for each tag, with one archive in it. SITE gets each archive's pages in a
folder of the tag's name, a first page that leads to the newest, and a list of all.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from zipfile import ZipFile

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Attention, Executed</title>
{head}</head>
<body>
{body}
</body>
</html>
"""


def number(tag: str) -> tuple[int, ...]:
    """Read a tag such as v1.10.2, so that it comes after v1.9."""
    if not re.fullmatch(r"v\d+(\.\d+)*", tag):
        raise ValueError(f"a release is named v and numbers, such as v1.2.0; got {tag!r}")
    return tuple(int(part) for part in tag[1:].split("."))


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive without the folder that all of it lies in."""
    with ZipFile(archive) as packed:
        for name in packed.namelist():
            inside = Path(*Path(name).parts[1:])
            if name.endswith("/"):
                continue
            target = folder / inside
            if not target.resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"{archive.name} holds {name!r}, which leads out of its folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(packed.read(name))


def assemble(releases: Path, site: Path) -> list[str]:
    """Lay out the site and return the tags, newest first."""
    tags = sorted((folder.name for folder in releases.iterdir()), key=number, reverse=True)
    if not tags:
        raise ValueError(f"no releases in {releases}")
    for tag in tags:
        (archive,) = (releases / tag).glob("*.zip")
        unpack(archive, site / tag)
    lead = f'<meta http-equiv="refresh" content="0; url={tags[0]}/index.html">\n'
    body = f'<p><a href="{tags[0]}/index.html">The newest edition</a></p>'
    (site / "index.html").write_text(PAGE.format(head=lead, body=body), encoding="utf-8")
    items = "\n".join(f'<li><a href="{tag}/index.html">{tag}</a></li>' for tag in tags)
    body = f"<h1>Editions</h1>\n<ul>\n{items}\n</ul>"
    (site / "editions.html").write_text(PAGE.format(head="", body=body), encoding="utf-8")
    return tags


if __name__ == "__main__":
    print("\n".join(assemble(Path(sys.argv[1]), Path(sys.argv[2]))))
