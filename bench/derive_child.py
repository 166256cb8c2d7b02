"""The process that derives the closed form of a user's module: the request on stdin, the answer as JSON.

As in bench.child, everything of ours is imported before the user's code, and our package names are given up.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from bench.derivation import CannotBuild, derive
from bench.interpolate import Grid
from bench.right.count import UncountedError
from bench.user_code import UserCodeError, build, check_settings, forget_ours, load


def main() -> int:
    """Answer the request on stdin; 0 unless the request itself is wrong."""
    request = json.load(sys.stdin)
    # What user code prints must not get among the command's output.
    os.dup2(2, 1)
    forget_ours(Path(request["root"]))
    try:
        answer = _answer(request)
    except (UserCodeError, CannotBuild) as error:
        answer = {"error": str(error)}
    except UncountedError as error:
        answer = {"error": f"{error}; a closed form needs every operation to be known"}
    Path(request["out"]).write_text(json.dumps(answer))
    return 0


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    spec = request["spec"]
    function = load(spec, Path(request["here"]))
    check_settings(spec, function, {**request["settings"], **request["base"]})

    def made(**sizes):
        module, args, kwargs = build(spec, function, {**request["settings"], **sizes})
        return module.eval(), args, kwargs

    return derive(made, Grid(request["base"], request["step"])).as_record()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        sys.exit(70)
