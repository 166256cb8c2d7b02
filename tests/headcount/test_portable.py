"""A checkout works without symbolic links: Git writes them as plain files where a system has none."""

import shutil
import subprocess
import sys

from tests.headcount.sources import PACKAGES, ROOT


def test_checkout_without_symbolic_links(tmp_path):
    (tmp_path / "headcount").mkdir()
    for path in (ROOT / "headcount").glob("*.py"):
        shutil.copy(path, tmp_path / "headcount")
    for package in PACKAGES[1:]:
        (tmp_path / package).symlink_to(ROOT / package)
        (tmp_path / "headcount" / package).write_text(f"../{package}")
    argv = [sys.executable, "-S", "-m", "bench.macs", "--counter", "closed-form"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("24 printed rows: 15 reproduced")
