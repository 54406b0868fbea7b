"""Report pages as a browser shows them."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest


def shown_by_a_browser(page: Path, *options: str) -> tuple[str, str]:
    """The document as Chromium has it after loading, and what it logged."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium is installed")
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", *options]
    command += [f"--user-data-dir={page.parent / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


def cut_off(text: str, page: Path, width: int) -> list[str]:
    """The captions of the tables that a window of ``width`` pixels does not show whole."""
    wide = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.ariaLabel)"
    script = f"<script>document.title = 'wide ' + JSON.stringify({wide})</script></body>"
    text = text.replace("default-src 'none'", "script-src 'unsafe-inline'").replace("</body>", script)
    page.write_text(text, encoding="utf-8")
    document, _ = shown_by_a_browser(page, f"--window-size={width},900")
    captions: list[str] = json.loads(re.search("<title>wide (.*?)</title>", document, re.S)[1])
    return captions
