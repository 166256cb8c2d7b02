"""Hooks of mkdocs: the pages are README.md, the guides and the report, each under its path in the repository."""

import re
from html import unescape
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

from headcount.reports import document

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("reports/generated", "reports/site/guides")


def on_config(config):
    """Give headings the anchors of GitHub."""
    config.mdx_configs["toc"] = {"slugify": lambda title, _: document.anchor(title), "permalink": True}
    return config


def on_files(files, config):
    """Return the theme's files and those of the site."""
    paths = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    paths += [path for folder in FOLDERS for path in sorted((ROOT / folder).iterdir())]
    paths += sorted((ROOT / "reports/records").glob("*.csv"))
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    own = [File(name, str(ROOT), config.site_dir, use_directory_urls=False) for name in names]
    return Files([*(file for file in files if file.src_dir != config.docs_dir), *own])


def on_page_markdown(markdown, page, config, files):
    """Return the text with markdown inside of its folded parts, as GitHub reads it, and without the line of contents,
    which the navigation has."""
    contents = re.compile(r"^(\[[^]]+\]\(#[^)]+\)( · |$))+\n", re.MULTILINE)
    return contents.sub("", markdown.replace("<details>", "<details markdown>"), count=1)


def on_page_content(html, page, config, files):
    """Return the page with its formulas as MathML, and with tables that the keyboard can scroll."""
    html = html.replace("<table>", '<table tabindex="0">')
    return re.sub(r'<span class="arithmatex">\\\((.*?)\\\)</span>', lambda found: convert(unescape(found[1])), html)


def on_post_page(output, page, config):
    """Return the page with a name for the theme's search dialog."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def on_post_build(config):
    """Link the cost calculator, a page without the theme, to the documentation."""
    page = Path(config.site_dir, "reports/generated/explorer.html")
    link = '<a href="index.html">← documentation</a>\n'
    page.write_text(page.read_text("utf-8").replace("<h1>", f"{link}<h1>", 1), "utf-8")


def on_post_template(output_content, template_name, config):
    """Return the page of a missing address with the same name."""
    return on_post_page(output_content, None, config)
