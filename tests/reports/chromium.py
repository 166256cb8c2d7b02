"""Run a test's script in a page in headless Chromium and return its answer."""

import html
import json
import shutil
import subprocess

import pytest

BINARY = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
needed = pytest.mark.skipif(BINARY is None, reason="no chromium on this machine: apt-get install chromium")
DEAD_PROXY = "127.0.0.1:9"
"""A proxy address without a server: every network request fails."""

# Collects errors from before the page's own script; the answer is in the page when the test's script has run.
BEFORE = """<script>
window.problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => problems.push(`refused: ${event.blockedURI}`));
window.answer = (what) => {
  const result = { problems, loaded: performance.getEntriesByType("resource").map((one) => one.name), answer: what };
  const place = document.body.appendChild(document.createElement("pre"));
  place.id = "answer";
  place.textContent = JSON.stringify(result);
};
</script>"""


def insert(page, program):
    """Return ``page`` with a script after its own, which calls ``answer`` with JSON data."""
    before = page.replace("<title>", f"{BEFORE}<title>", 1)
    caught = ".catch((error) => {\n  problems.push(error.stack);\n  answer(null);\n})"
    return before.replace("</body>", f"<script>\n(async () => {{\n{program}\n}})(){caught};\n</script></body>", 1)


def run_in_page(folder, page, program, *options):
    """Return the answer of the script; the page must open without an error and load nothing. ``options``: further
    ones of Chromium."""
    path = folder / "page.html"
    path.write_text(insert(page, program), "utf-8")
    command = [BINARY, "--headless", "--no-sandbox", "--disable-gpu", f"--proxy-server={DEAD_PROXY}"]
    command += ["--window-size=1300,1000", "--virtual-time-budget=20000", *options, "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    _, there, rest = done.stdout.partition('<pre id="answer">')
    assert there, done.stderr[-2000:]
    found = json.loads(html.unescape(rest.partition("</pre>")[0]))
    assert found["problems"] == [] and found["loaded"] == []
    return found["answer"]
