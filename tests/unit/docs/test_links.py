"""Links in Markdown lead somewhere. `make docs` checks those between pages of the site, and their anchors."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[3]
LABS = ROOT / "src" / "unstarve" / "labs" / "material"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *LABS.rglob("*.md")]


def links() -> list[tuple[Path, str]]:
    found = []
    for page in PAGES:
        text = re.sub(r"^ *```.*?^ *```$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        found += [(page, link) for link in re.findall(r'\]\(([^)]+)\)|(?:src|srcset)="([^"]+)"', text)]
    return [(page, markdown or html) for page, (markdown, html) in found]


def test_links_to_other_sites_are_well_formed() -> None:
    outside = {link for _, link in links() if "://" in link}
    assert len(outside) > 10
    for link in outside:
        parts = urlsplit(link)
        assert (parts.scheme, parts.port) == ("https", None), link
        assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", parts.netloc), link
        assert re.fullmatch(r"[!-~]*", link), link


def test_links_to_files_lead_to_files_of_the_repository() -> None:
    inside = [(page, link) for page, link in links() if "://" not in link and not link.startswith("#")]
    assert len(inside) > 100
    missing = [
        f"{page.relative_to(ROOT)}: {link}"
        for page, link in inside
        if not (page.parent / link.partition("#")[0]).exists()
    ]
    assert missing == []


def test_anchors_of_pages_outside_the_site_are_headings() -> None:
    for page, link in links():
        path, _, anchor = link.partition("#")
        if page.parent != ROOT or "://" in link or not anchor:
            continue
        headings = re.findall(r"^#+ (.*)$", (page.parent / (path or page.name)).read_text(), re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", one.lower()).strip().replace(" ", "-") for one in headings}
        assert anchor in slugs, f"{page.name}: {link}"
