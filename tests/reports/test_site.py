"""The documentation site builds without warnings, which broken links give, and loads nothing from the network."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from urllib.parse import urlsplit

import pytest

import headcount

ROOT = headcount.CHECKOUT
GUIDES = ROOT / "reports" / "site" / "guides"
OTHER_NAMES = {"count_macs", "gqa", "mqa"}
"""Other names of ``count`` and ``mha``."""


class Loaded(HTMLParser):
    """The addresses that a page loads; a link loads nothing."""

    def __init__(self, text):
        super().__init__()
        self.addresses = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag != "a":
            values = dict(attrs)
            self.addresses += [part.split()[0] for part in values.get("srcset", "").split(",") if part.strip()]
            self.addresses += [values[name] for name in ("src", "href", "data") if values.get(name)]


def is_external(address):
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


@pytest.mark.skipif(find_spec("mkdocstrings") is None, reason="mkdocs is missing: make docs installs it")
def test_site_loads_nothing_external(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", "reports/site/mkdocs.yml", "-d", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {path: Loaded(path.read_text("utf-8")).addresses for path in tmp_path.rglob("*.html")}
    assert len(found) > 20
    for path in tmp_path.rglob("*.css"):
        found[path] = re.findall(r"(?:url\(|@import )\s*[\"']?([^\"')\s]+)", path.read_text("utf-8"))
    assert {str(path): bad for path, every in found.items() if (bad := list(filter(is_external, every)))} == {}


def test_api_page_has_every_public_name():
    names = re.findall(r"^::: headcount\.(\w+)(?:\.layer)?$", (GUIDES / "api.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(names) == sorted(set(dir(headcount)) - OTHER_NAMES)
