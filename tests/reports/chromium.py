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
  if (parent !== window) return parent.postMessage({ hash: location.hash, width: innerWidth, ...said }, "*");
  const place = document.body.appendChild(document.createElement("pre"));
  place.id = "answer";
  place.textContent = JSON.stringify(said);
};
</script>"""


def asking(page, program):
    """``page`` with a program after its own, which calls ``answer`` with anything that JSON can hold."""
    before = page.replace("<title>", f"{BEFORE}<title>", 1)
    return before.replace("</body>", f"<script>\n(async () => {{\n{program}\n}})();\n</script></body>", 1)


def ask(folder, page, program, hash=""):
    """What the program in the page answers; the page must open without an error and load nothing."""
    path = folder / "page.html"
    path.write_text(asking(page, program), "utf-8")
    found = _opened(f"{path.as_uri()}#{hash}")
    assert found["problems"] == [] and found["loaded"] == []
    return found["said"]


def ask_framed(folder, page, program, widths, hashes):
    """By width and hash, what the program answers in a frame of that width."""
    (folder / "page.html").write_text(asking(page, program), "utf-8")
    frames = [
        f'<iframe src="page.html#{html.escape(hash)}" style="border:0;width:{width}px;height:900px"></iframe>'
        for width in widths
        for hash in hashes
    ]
    script = f"""<pre id="answer"></pre><script>
const found = [];
addEventListener("message", (event) => {{
  if (found.push(event.data) === {len(frames)}) document.getElementById("answer").textContent = JSON.stringify(found);
}});
</script>"""
    path = folder / "frames.html"
    path.write_text(f"<!doctype html><body>{script}{''.join(frames)}</body>", "utf-8")
    found = _opened(path.as_uri())
    assert [one["problems"] for one in found] == [[]] * len(frames)
    return {(one["width"], one["hash"].removeprefix("#")): one["said"] for one in found}


def _opened(address):
    command = [BINARY, "--headless", "--no-sandbox", "--disable-gpu", f"--proxy-server={NOTHING}"]
    command += ["--window-size=1300,1000", "--virtual-time-budget=20000", "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    _, there, rest = done.stdout.partition('<pre id="answer">')
    assert there, done.stderr[-2000:]
    return json.loads(html.unescape(rest.partition("</pre>")[0]))
