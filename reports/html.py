"""The pages as static HTML that loads nothing from elsewhere, by markdown-it-py and jinja2 of the extra ``report``."""

import re
from collections.abc import Iterable

from headcount.bench.errors import EnvironmentMissing
from headcount.reports import markdown
from headcount.reports.mathml import mathml

TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src 'self'; style-src 'unsafe-inline'">
<title>headcount: {{ title }}</title>
<style>{{ style }}</style>
</head>
<body>
<nav>{% for name in names %}<a href="{{ name }}.html">{{ name }}</a> {% endfor %}</nav>
<main>
{{ body }}</main>
</body>
</html>
"""

STYLE = """
:root { color-scheme: light dark; --line: #d8dee4; }
@media (prefers-color-scheme: dark) { :root { --line: #3d444d; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
nav { border-bottom: 1px solid var(--line); padding-bottom: .5rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: .9em; }
th, td { border: 1px solid var(--line); padding: .2rem .5rem; vertical-align: top; }
td { font-variant-numeric: tabular-nums; }
pre { overflow-x: auto; padding: .5rem; border: 1px solid var(--line); }
img { max-width: 100%; height: auto; }
@media print { nav { display: none; } }
"""


def page(text: str, names: Iterable[str]) -> str:
    """A page of markdown as HTML, with links to the pages called ``names``. EnvironmentMissing without the extra."""
    try:
        from jinja2 import Environment
        from markdown_it import MarkdownIt
        from markupsafe import Markup
    except ModuleNotFoundError as error:
        raise EnvironmentMissing(f"{error.name} is not installed; pip install 'headcount[report]' brings it") from None

    names = list(names)
    formulas: list[str] = []

    def kept(match: re.Match) -> str:
        formulas.append(match[1])
        return f"\x02{len(formulas) - 1}\x03"

    # a dollar sign of a command is none of a formula's
    pieces = re.split(r"(```.*?```|`[^`\n]*`)", text, flags=re.DOTALL)
    marked = "".join(p if p.startswith("`") else re.sub(r"\$([^$\n]+)\$", kept, p) for p in pieces)
    body = MarkdownIt("commonmark").enable("table").render(marked)
    body = re.sub("\x02(\\d+)\x03", lambda match: mathml(formulas[int(match[1])]), body)
    body = re.sub(r'href="([\w-]+)\.md(#[^"]*)?"', lambda m: f'href="{m[1]}.html{m[2] or ""}"', body)
    body = re.sub(r"<h([1-6])>(.*?)</h\1>", _anchored, body)
    title = text.partition("\n")[0].removeprefix("# ")
    template = Environment(autoescape=True).from_string(TEMPLATE, {"style": Markup(STYLE)})
    return template.render(title=title, names=names, body=Markup(body)) + "\n"


def _anchored(match: re.Match) -> str:
    plain = re.sub(r"<[^>]+>", "", match[2]).replace("&quot;", '"').replace("&amp;", "&")
    return f'<h{match[1]} id="{markdown.anchor(plain)}">{match[2]}</h{match[1]}>'
