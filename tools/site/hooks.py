"""MkDocs hooks: pages made from the command line, the public names, the sections of docs/checks.md and the
root's files; the navigation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

import unstarve
from unstarve.cli.help_text import explanation, signature
from unstarve.cli.reference import VerbReference, verb_references

ROOT = Path(__file__).parents[2]
FROM_ROOT = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
REFERENCES = verb_references()
CHECKS = dict(re.findall(r"(?ms)^## ([a-z-]+)\n(.*?)(?=^## |\Z)", (ROOT / "docs/checks.md").read_text()))
"""Sections by id: one file in the repository, a page each on the site."""
VERBS = [one.name for one in REFERENCES if " " not in one.name]

# Tab → patterns of pages, in order; a page belongs to the first that matches, the rest to the last tab.
TABS = {
    "Start": [
        "index.md",
        "install.md",
        "report.md",
        "advice.md",
        "faq.md",
        "labs.md",
        "evaluate.md",
        "notebooks.md",
    ],
    "Handbook": ["handbook/*.md", "causes/index.md", "causes/*.md", "recipes/*.md"],
    "Make it fast": [
        "loader.md",
        "dataloader.md",
        "cached.md",
        "tensor-files.md",
        "packed.md",
        "images.md",
        "decoding.md",
        "prefetch.md",
        "share.md",
        "ranks.md",
        "ray.md",
        "autotune.md",
        "find-num-workers.md",
    ],
    "Commands": [*(f"{verb}.md" for verb in VERBS), "commands/*.md"],
    "Checks": ["checks.md", "checks/*.md"],
    "Python": ["api/*.md"],
    "More": ["*.md"],
}
API = {
    "parts": ("unstarve.tune", "unstarve.fixes"),
    "runs": ("unstarve.api", "unstarve.checks", "unstarve.collect", "unstarve.evaluate.record_block"),
    "measuring": ("unstarve.evaluate",),
    "results": ("unstarve.model",),
    "errors": ("unstarve.errors",),
}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that no file holds, then build the navigation from all of them."""
    made = {f"commands/{verb}.md": f"# `unstarve {verb}`\n" for verb in VERBS if not _written(files, verb)}
    made |= {f"api/{group}.md": text for group, text in _api_pages().items()}
    made |= {f"checks/{check}.md": _check_page(check) for check in CHECKS}
    made |= {page: _from_root((ROOT / name).read_text()) for name, page in FROM_ROOT.items()}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    left = sorted(file.src_uri for file in files.documentation_pages())
    config.nav = []
    for tab, patterns in TABS.items():
        pages = list(dict.fromkeys(one for pattern in patterns for one in left if Path(one).match(pattern)))
        left = [one for one in left if one not in pages]
        if pages:
            config.nav.append({tab: pages})
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """End the page of a verb with its reference; links to root files and to checks lead to pages here."""
    for name, target in {**FROM_ROOT, "README.md": "index.md"}.items():
        markdown = markdown.replace(f"(../{name}", f"({target}")
    if page.file.src_uri == "checks.md":
        markdown = re.sub(r"\(#([a-z-]+)\)", r"(checks/\1.md)", markdown.partition("\n## ")[0])
    markdown = re.sub(r"checks\.md#([a-z-]+)\)", r"checks/\1.md)", markdown)
    verb = Path(page.file.src_uri).stem
    if verb in VERBS and page.file.src_uri in (f"{verb}.md", f"commands/{verb}.md"):
        parts = (one for one in REFERENCES if one.name.split()[0] == verb)
        markdown += "\n" + "\n".join(map(_reference, parts))
    return markdown


def _check_page(check: str) -> str:
    text = re.sub(r"\(([a-z-]+)\.md", r"(../\1.md", CHECKS[check])
    return f"# `{check}`\n" + re.sub(r"\(#([a-z-]+)\)", r"(\1.md)", text)


def _written(files: Any, verb: str) -> bool:
    return files.get_file_from_path(f"{verb}.md") is not None


def _from_root(text: str) -> str:
    text = text.replace("](docs/", "](")
    for name, page in FROM_ROOT.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text


def _reference(verb: VerbReference) -> str:
    lines = [f"## Reference: `unstarve {verb.name}`", "", "```", verb.usage, "```", ""]
    for paragraph in (verb.summary, *verb.description):
        lines += [paragraph, ""]
    parameters = [*verb.arguments, *verb.options]
    lines += ["| argument or option | |", "|---|---|"]
    lines += [
        f"| `{signature(one)}` | {_cell(explanation(one)).replace('[', '&#91;')} |" for one in parameters
    ]
    for example in verb.examples:
        lines += ["", example.purpose, "", "```", example.line, "```"]
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _api_pages() -> dict[str, str]:
    pages = {group: [f"# Python: {group}", ""] for group in API}
    for name in sorted(unstarve._HOMES):
        home = unstarve._HOMES[name]
        group = next(group for group, homes in API.items() if home.startswith(homes))
        pages[group].append(f"::: {home}.{name}\n")
    return {group: "\n".join(lines) for group, lines in pages.items()}
