"""The documentation site builds without warnings, loads nothing from the network, and has no broken links."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

import pytest

import headcount
from tests.reports import chromium

ROOT = headcount.CHECKOUT
GUIDES = ROOT / "reports" / "site" / "guides"
OTHER_NAMES = {"count_macs", "gqa", "mqa"}
"""Other names of ``count`` and ``mha``."""
LONG = {"reports/site/guides/api.html", "404.html"}
"""Pages that may be higher than 9,000 px: the API reference, and 404.html, which finds its styles only on a server."""
FILES = "--allow-file-access-from-files"
"""Option of Chromium that lets a page read the content of its frames."""
needs_mkdocs = pytest.mark.skipif(find_spec("mkdocstrings") is None, reason="mkdocs is missing: make docs installs it")


class Page(HTMLParser):
    """A parsed HTML page: its element ids, the addresses that it loads, and the addresses that it links to."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.loaded, self.linked = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids.add(values.get("id"))
        self.linked += [values["href"]] if tag == "a" and values.get("href") else []
        if tag != "a":
            sources = [part.split()[0] for part in values.get("srcset", "").split(",") if part.strip()]
            self.loaded += sources + [values[name] for name in ("src", "href", "data") if values.get(name)]


def is_external(address):
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def is_broken(path, address, pages, root):
    """Return whether a link in the page at ``path`` leads to a missing file or to a missing element id."""
    parts = urlsplit(address)
    if parts.scheme:
        return False
    place = root / parts.path[1:] if parts.path.startswith("/") else path.parent / unquote(parts.path)
    target = (place if parts.path else path).resolve()
    target = target / "index.html" if target.is_dir() else target
    if not parts.fragment or target not in pages:
        return not target.is_file()
    return unquote(parts.fragment) not in pages[target].ids


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site and return its folder."""
    folder = tmp_path_factory.mktemp("site").resolve()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", "reports/site/mkdocs.yml", "-d", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html")}


@needs_mkdocs
def test_site_loads_nothing_external(site, pages):
    found = {str(path): [one for one in page.loaded if is_external(one)] for path, page in pages.items()}
    for path in site.rglob("*.css"):
        addresses = re.findall(r"(?:url\(|@import )\s*[\"']?([^\"')\s]+)", path.read_text("utf-8"))
        found[str(path)] = [one for one in addresses if is_external(one)]
    assert len(pages) > 20 and {name: bad for name, bad in found.items() if bad} == {}


@needs_mkdocs
def test_theme_scripts_load_nothing_external(site):
    """Its scripts load GitHub stars and mermaid only on pages with such elements, and no page has any."""
    texts = {path: path.read_text("utf-8") for path in site.rglob("*.html")}
    assert [str(path) for path, text in texts.items() if re.search(r'="source"|class="[^"]*mermaid', text)] == []
    hosts = {host for path in (site / "assets").rglob("*.js") for host in hosts_loaded(path.read_text("utf-8"))}
    assert hosts <= {"api.github.com", "unpkg.com"}


def hosts_loaded(script):
    return re.findall(r"""(?:fetch|import|[A-Za-z_$]+)\(["'`]https?://([^/"'`]+)""", script)


@needs_mkdocs
def test_links_resolve(site, pages):
    found = {
        str(path.relative_to(site)): [one for one in page.loaded + page.linked if is_broken(path, one, pages, site)]
        for path, page in pages.items()
    }
    assert {name: bad for name, bad in found.items() if bad} == {}


LAYOUT = """
const folded = (page) => page.querySelectorAll("details").forEach((one) => { one.open = true; });
const wide = (page) => [...page.querySelectorAll("body, pre > code, table")].filter(
  (one) => one.scrollWidth > one.clientWidth + 1);
const lines = (cell) => { const range = document.createRange(); range.selectNodeContents(cell);
  return [...range.getClientRects()].map((line) => line.bottom); };
const broken = (page) => [...page.querySelectorAll("td:first-child")].filter(
  (one) => one.textContent.length < 25 && Math.max(...lines(one)) - Math.min(...lines(one)) > 9);
const texts = (found) => found.map((one) => one.textContent.trim().slice(0, 60));
const found = {};
for (const name of names) {
  const frame = document.body.appendChild(document.createElement("iframe"));
  frame.sandbox = "allow-same-origin";
  Object.assign(frame, { width: 1012, height: 900, src: name });
  await new Promise((loaded) => { frame.onload = loaded; });
  const page = frame.contentDocument, height = page.documentElement.scrollHeight;
  folded(page);
  found[name] = { height, wide: texts(wide(page)), broken: texts(broken(page)) };
  frame.remove();
}
answer(found);
"""
"""Script that opens each page at a width of 1,012 px without the page's scripts.

It returns the height, and with all details open the elements that are too wide and the short first cells that wrap.
"""


@needs_mkdocs
@chromium.needed
def test_pages_fit_1012_px(site, pages):
    names = [path.relative_to(site).as_posix() for path in pages]
    found = chromium.run_in_page(site, "<title></title><body></body>", f"const names = {names};\n{LAYOUT}", FILES)
    assert {key: one for key, one in found.items() if one["wide"] or one["broken"]} == {}
    assert {key: one["height"] for key, one in found.items() if one["height"] > 9000 and key not in LONG} == {}


@needs_mkdocs
def test_pages_have_formulas_and_search(site, pages):
    text = (site / "reports/generated/notation.html").read_text("utf-8")
    assert "<math" in text and "arithmatex" not in text
    assert "MFU" in (site / "search/search_index.json").read_text("utf-8")


def test_broken_links_and_requests_are_found(tmp_path):
    text = (
        '<a href="#a">x</a><p id="b"></p><a href="no.html"></a><img src="//cdn.org/x.png"><link href="https://f.org">'
    )
    path = tmp_path / "page.html"
    path.write_text(text)
    page = Page(text)
    assert [one for one in page.linked if is_broken(path, one, {path: page}, tmp_path)] == ["#a", "no.html"]
    assert not is_broken(path, "page.html#b", {path: page}, tmp_path)
    assert [one for one in page.loaded if is_external(one)] == ["//cdn.org/x.png", "https://f.org"]


def test_api_page_has_every_public_name():
    names = re.findall(r"^::: headcount\.(\w+)(?:\.layer)?$", (GUIDES / "api.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(names) == sorted(set(dir(headcount)) - OTHER_NAMES)
