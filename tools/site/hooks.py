"""MkDocs hooks: pages made from the command line, the public names, the sections of docs/checks.md and the
root's files; the navigation."""

from __future__ import annotations

import fnmatch
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
CHECKS_PAGE = (ROOT / "docs/checks.md").read_text()
CHECKS = dict(re.findall(r"(?ms)^## ([a-z-]+)\n(.*?)(?=^## |\Z)", CHECKS_PAGE))
"""Sections by id: one file in the repository, a page each on the site."""
VERBS = [one.name for one in REFERENCES if " " not in one.name]

API = {
    "parts": ("unstarve.tune", "unstarve.fixes"),
    "runs": ("unstarve.api", "unstarve.checks", "unstarve.collect", "unstarve.evaluate.record_block"),
    "measuring": ("unstarve.evaluate",),
    "results": ("unstarve.model",),
    "errors": ("unstarve.errors",),
}

# What explains a verb whose own page is only its reference.
EXPLAINED = {
    "run": "What it prints: [Reading a report](../report.md).",
    "ideal": "What it measures: [If loading were free](../report.md#if-loading-were-free).",
    "merge": "When to use it: [Many ranks](../ranks.md#several-nodes).",
    "compare": "How to read it: [Reading a report](../report.md#unstarve-compare-a-b).",
    "report": "How to read it: [Reading a report](../report.md).",
    "trace": "When to use it: [The workflow](../handbook/3-workflow.md#3-explain-why-does-it-wait).",
    "nsys": "How to use it: [Other profilers](../import.md#let-unstarve-run-nsys).",
    "pack": "How to use it: [`PackedDataset`](../packed.md).",
    "whatif": "How it forecasts: [How it measures](../how-it-measures.md#forecasts).",
    "bench": "What it printed: [Measured gains](../loader.md#measured-gains).",
    "lab": "All exercises: [Labs](../labs.md).",
}

# Tab → patterns of pages, in order, or a group of them; a page belongs to the first that matches.
TABS: dict[str, list[str | dict[str, list[str]]]] = {
    "Start": ["index.md", "install.md", "report.md", "advice.md", "faq.md", "labs.md"],
    "Handbook": [
        "handbook/*.md",
        {"Look closer": ["profile.md", "memory.md", "ranks.md", "ray.md", "watch.md", "monitoring.md"]},
        {"Causes": ["causes/index.md", "causes/*.md"]},
        {"Recipes": ["recipes/*.md"]},
    ],
    "Make it fast": [
        "loader.md",
        {
            "Parts": [
                "dataloader.md",
                "cached.md",
                "tensor-files.md",
                "packed.md",
                "images.md",
                "decoding.md",
                "prefetch.md",
                "share.md",
            ]
        },
        {"Settings": ["autotune.md", "find-num-workers.md"]},
    ],
    "Commands": [f"{folder}{verb}.md" for verb in VERBS for folder in ("commands/", "")],
    "Checks": [
        "checks.md",
        *(
            {group: [f"checks/{check}.md" for check in re.findall(r"\(#([a-z-]+)\)", rows)]}
            for group, rows in re.findall(r"(?m)^\| ([A-Z][a-z ]+) \| \|\n((?:\|.*\n)+)", CHECKS_PAGE)
        ),
    ],
    "Python": ["evaluate.md", "notebooks.md", {"Reference": [f"api/{group}.md" for group in API]}],
    "More": [
        {"How it works": ["how-it-measures.md", "accuracy.md", "reliability.md", "run-format.md"]},
        {"Project": ["comparison.md", "contributing.md", "security.md", "changelog.md"]},
        "*.md",
    ],
}


PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="(.+?)">\s*<img src="(.+?)" alt="(.+?)".*?</picture>', re.S
)
"""An image in two themes, as code hosts understand it. They go by the browser, the site by its own switch."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that no file holds, then build the navigation from all of them."""
    made = {f"commands/{verb}.md": _verb_page(verb) for verb in VERBS if not _has_own_page(files, verb)}
    made |= {f"api/{group}.md": text for group, text in _api_pages().items()}
    made |= {f"checks/{check}.md": _check_page(check) for check in CHECKS}
    made |= {page: _from_root((ROOT / name).read_text()) for name, page in FROM_ROOT.items()}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    left = sorted(file.src_uri for file in files.documentation_pages())
    config.nav = [{tab: _nav(patterns, left)} for tab, patterns in TABS.items()]
    return files


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """End the page of a verb with its reference; links to root files and to checks lead to pages here."""
    markdown = PICTURE.sub(r"![\3](\2#only-light)\n![\3](\1#only-dark)", markdown)
    for name, target in {**FROM_ROOT, "README.md": "index.md"}.items():
        markdown = markdown.replace(f"(../{name}", f"({target}")
    if page.file.src_uri == "checks.md":
        markdown = re.sub(r"\(#([a-z-]+)\)", r"(checks/\1.md)", markdown.partition("\n## ")[0])
    markdown = re.sub(r"checks\.md#([a-z-]+)\)", r"checks/\1.md)", markdown)
    verb = Path(page.file.src_uri).stem
    if page.file.src_uri == f"{verb}.md" and verb in VERBS and _has_own_page(files, verb):
        markdown += "\n" + "\n".join(
            f"## Reference: `unstarve {one.name}`\n{_reference(one)}" for one in _of(verb)
        )
    return markdown


def _nav(patterns: list[Any], left: list[str]) -> list[Any]:
    """Take the pages that match from `left`, in the order of the patterns; a group becomes a section."""
    entries: list[Any] = []
    for pattern in patterns:
        if isinstance(pattern, dict):
            entries += [{title: _nav(inner, left)} for title, inner in pattern.items()]
            continue
        for page in fnmatch.filter(left, pattern):
            left.remove(page)
            verb = Path(page).stem
            entries.append({f"unstarve {verb}": page} if verb in VERBS and page != "report.md" else page)
    return entries


def _verb_page(verb: str) -> str:
    first, *others = _of(verb)
    text = f"# `unstarve {verb}`\n{_reference(first)}\n"
    text += "".join(f"\n## `unstarve {one.name}`\n{_reference(one)}" for one in others)
    return f"{text}\n{EXPLAINED.get(verb, '')}\n"


def _of(verb: str) -> list[VerbReference]:
    return [one for one in REFERENCES if one.name.split()[0] == verb]


def _check_page(check: str) -> str:
    text = re.sub(r"\(([a-z-]+)\.md", r"(../\1.md", CHECKS[check])
    return f"# `{check}`\n" + re.sub(r"\(#([a-z-]+)\)", r"(\1.md)", text)


def _has_own_page(files: Any, verb: str) -> bool:
    """Whether a page of docs/ is about this verb; docs/report.md is about what a report says."""
    return verb != "report" and files.get_file_from_path(f"{verb}.md") is not None


def _from_root(text: str) -> str:
    text = text.replace("](docs/", "](")
    for name, page in FROM_ROOT.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text


def _reference(verb: VerbReference) -> str:
    lines = ["", "```", verb.usage, "```", ""]
    for paragraph in (verb.summary, *verb.description):
        lines += [paragraph, ""]
    parameters = [*verb.arguments, *verb.options]
    if len(parameters) > 1:  # more than --help
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
