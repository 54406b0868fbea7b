"""Hooks of the documentation site: pages of the project's root are part of it, under names of their own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Files, config: Any) -> Files:
    """Add the root's pages; their links into docs/ lose the folder."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to the root's pages lead to them, those to the README to the first page."""
    for name, page in {**PAGES, "README.md": "index.md"}.items():
        markdown = re.sub(rf"\]\((?:\.\./)?{re.escape(name)}", f"]({page}", markdown)
    return markdown
