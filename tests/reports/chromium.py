"""A headless Chromium that opens a page with a program of a test's in it, and what that program answers."""

import html
import json
import shutil
import subprocess

import pytest

BINARY = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
needed = pytest.mark.skipif(BINARY is None, reason="no chromium on this machine: apt-get install chromium")
NOTHING = "127.0.0.1:9"
"""A proxy that nobody answers at: whatever is asked of a network fails."""

# Errors are kept from before the page's own program, and the answer is there when it has run.
BEFORE = """<script>
window.problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => problems.push(`refused: ${event.blockedURI}`));
window.answer = (what) => {
  const said = { problems, loaded: performance.getEntriesByType("resource").map((one) => one.name), said: what };
  const place = document.body.appendChild(document.createElement("pre"));
  place.id = "answer";
  place.textContent = JSON.stringify(said);
};
</script>"""


def asking(page, program):
    """``page`` with a program after its own, which calls ``answer`` with anything that JSON can hold."""
    before = page.replace("<title>", f"{BEFORE}<title>", 1)
    return before.replace("</body>", f"<script>\n(async () => {{\n{program}\n}})();\n</script></body>", 1)


def ask(folder, page, program):
    """What the program in the page answers; the page must open without an error and load nothing."""
    path = folder / "page.html"
    path.write_text(asking(page, program), "utf-8")
    found = _opened(path.as_uri())
    assert found["problems"] == [] and found["loaded"] == []
    return found["said"]


def _opened(address):
    command = [BINARY, "--headless", "--no-sandbox", "--disable-gpu", f"--proxy-server={NOTHING}"]
    command += ["--window-size=1300,1000", "--virtual-time-budget=20000", "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    _, there, rest = done.stdout.partition('<pre id="answer">')
    assert there, done.stderr[-2000:]
    return json.loads(html.unescape(rest.partition("</pre>")[0]))
