"""The process that derives the closed form of a user's module: the request on stdin, the answer as JSON.

As in bench.isolated.child, our checkout leaves the path of imports before the user's code is imported.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from headcount.bench.contractions.count import UncountedError
from headcount.bench.derive.derivation import CannotBuild, derive
from headcount.bench.derive.interpolate import Grid
from headcount.bench.isolated.user_code import UserCodeError, build, check_settings, leave_path, load


def main() -> int:
    """Answer the request on stdin; 0 unless the request itself is wrong."""
    request = json.load(sys.stdin)
    # What user code prints must not get among the command's output.
    os.dup2(2, 1)
    leave_path(request["ours"])
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
