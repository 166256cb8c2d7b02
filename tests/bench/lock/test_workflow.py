"""Steps of the GitHub Actions workflow, run with replacements of gh and headcount."""

import json
import os
import re
import subprocess

import pytest

from headcount import CHECKOUT
from headcount.bench.lock.workflow import workflow

yaml = pytest.importorskip("yaml", reason="comes with fvcore")
TEXT = workflow()
JOBS = yaml.safe_load(TEXT)["jobs"]
STEPS = {step.get("name", step.get("uses")): step for job in JOBS.values() for step in job["steps"]}
ACTION = CHECKOUT / ".github/actions/lock/action.yml"
GH = """#!/bin/sh
echo "$@" >> calls
case "$*" in *--paginate*) [ -f existing ] && cat existing ;; esac
exit 0
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the script of a step as the runner does: with bash -e and its environment."""
    (tmp_path / "gh").write_text(GH)

    def step(name, code=0, table="a table"):
        (tmp_path / "headcount").write_text(f"#!/bin/sh\nprintf '%s' '{table}'\necho \"$@\" > arguments\nexit {code}\n")
        for program in ("gh", "headcount"):
            (tmp_path / program).chmod(0o755)
        env = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_OUTPUT": "outputs", "GITHUB_STEP_SUMMARY": "summary",
            "CODE": str(code), "COMMENTS": "repos/a/b/issues/7/comments", "COMMENT": "repos/a/b/issues/comments",
        }  # fmt: skip
        return subprocess.run(["bash", "-e", "-c", STEPS[name]["run"]], cwd=tmp_path, env=env, capture_output=True)

    return step


@pytest.mark.parametrize(("code", "table", "passes"), [(0, "x", True), (1, "x", True), (1, "", False), (2, "", False)])
def test_count_step_fails_without_a_table(run, tmp_path, code, table, passes):
    assert (run("Count again", code, table).returncode == 0) == passes
    assert (tmp_path / "arguments").read_text() == "lock --check macs.lock --format md\n"
    assert (tmp_path / "outputs").read_text() == f"code={code}\n"
    assert (tmp_path / "summary").read_text() == table


def test_comment_is_created_then_edited(run, tmp_path):
    (tmp_path / "macs.md").write_text("## a table\n")
    run("Comment", 0)
    assert (tmp_path / "calls").read_text().count("\n") == 1
    run("Comment", 1)
    assert (
        (tmp_path / "calls").read_text().endswith("api --silent repos/a/b/issues/7/comments --field body=@comment.md\n")
    )
    (tmp_path / "existing").write_text("31\n37\n")
    for code in (0, 1):
        run("Comment", code)
        wanted = "api --silent --method PATCH repos/a/b/issues/comments/31 --field body=@comment.md\n"
        assert (tmp_path / "calls").read_text().endswith(wanted)
    assert (tmp_path / "comment.md").read_text() == "<!-- headcount lock -->\n## a table\n"


def test_scripts_contain_no_expressions():
    """Values of the event reach scripts through environment variables only."""
    steps = [*STEPS.values(), *yaml.safe_load(ACTION.read_text())["runs"]["steps"]]
    assert all("${{" not in step["run"] for step in steps if "run" in step)


def test_only_the_job_without_foreign_code_may_write():
    # YAML reads the word on as true
    assert (yaml.safe_load(TEXT)["permissions"], yaml.safe_load(TEXT)[True]) == ({}, "pull_request")
    assert JOBS["count"]["permissions"] == {"contents": "read"}
    assert STEPS["Count again"] in JOBS["count"]["steps"] and "env" not in STEPS["Count again"]
    assert JOBS["comment"]["permissions"] == {"pull-requests": "write"}
    # runs of forks have no permission to comment
    assert "head.repo.full_name == github.repository" in JOBS["comment"]["if"]
    commands = [step.get("run", "") for step in JOBS["comment"]["steps"]]
    assert not any(word in command for command in commands for word in ("lock --check", "pip ", "python"))


def test_actions_are_pinned_by_commit():
    used = [step["uses"].partition("@") for step in STEPS.values() if "uses" in step]
    assert len(used) == 4 and all(re.fullmatch("[0-9a-f]{40}", commit) for _, _, commit in used)


def test_hook_of_the_guide_is_pinned():
    """pre-commit warns of a rev that is neither a hexadecimal commit nor a version with a dot."""
    guide = (CHECKOUT / "reports/site/guides/lock.md").read_text()
    (example,) = (text for text in re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL) if "pre-commit" in text[:40])
    (repo,) = yaml.safe_load(example)["repos"]
    assert re.fullmatch("[0-9a-f]{40}", repo["rev"]) and "rev-parse HEAD" in example


@pytest.mark.parametrize("several", [False, True])
def test_lock_installs_its_own_versions(run, tmp_path, several):
    lock = {"versions": {"torch": "2.13.0", "headcount": "0.2.0"}}
    (tmp_path / "macs.lock").write_text(json.dumps({"targets": [lock, lock]} if several else lock))
    (tmp_path / "pip").write_text('#!/bin/sh\necho "$@" >> installed\n')
    (tmp_path / "pip").chmod(0o755)
    assert run("Install the versions of the lock").returncode == 0
    torch, own = (tmp_path / "installed").read_text().splitlines()
    assert torch.startswith("install torch==2.13.0 ") and own == "install headcount @ git+URL@v0.2.0"
