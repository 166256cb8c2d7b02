"""A process that imports torch and the counters once, and forks a child for each request to count user code.

A child runs as bench.isolated.run starts it, without pytest's modules, but does not import torch again. Tests in
bench/isolated/ start real processes. The ranks of a process group are forks of such a child: see tests/processes.py.
"""

import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import contextmanager, suppress
from importlib import import_module

from headcount.bench.isolated import run as isolated

LARGEST = 2**16
"""Limit of the bytes of a request, which is sent as one packet."""


@contextmanager
def process():
    """Start the process and yield a replacement of bench.isolated.run._run; the process ends with the context."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    start = f"import runpy, sys; sys.path[:0] = {isolated._ROOTS!r}; runpy.run_path({__file__!r}, run_name='__main__')"
    with theirs:
        started = subprocess.Popen([sys.executable, "-P", "-c", start], stdin=theirs, stdout=subprocess.DEVNULL)

    def run(request, out, err=2):
        ends, lifeline = os.pipe()
        try:
            details = {"here": os.getcwd(), "environment": dict(os.environ), "request": request}
            socket.send_fds(ours, [json.dumps(details).encode()], [ends, out, err])
            return json.loads(ours.recv(LARGEST))
        finally:
            os.close(ends)
            os.close(lifeline)

    with started:
        with ours:
            yield run


def serve():
    """Fork a child for every request until the socket is closed."""
    from torch.fx.experimental.symbolic_shapes import uninteresting_files

    from headcount.bench.counters import registry
    from headcount.bench.isolated.child import main

    for task in isolated.TASKS.values():
        import_module(task)
    for name in registry.NAMES:
        registry.counter(name)
    # torch imports further modules when this function is first called
    uninteresting_files()
    gc.collect()
    gc.freeze()
    line = socket.socket(fileno=0)
    while True:
        text, places, *_ = socket.recv_fds(line, LARGEST, 3)
        if not text:
            return
        process = os.fork()
        if not process:
            _answer(main, places, **json.loads(text))
        for place in places:
            os.close(place)
        _, status = os.waitpid(process, 0)
        with suppress(OSError):
            os.killpg(process, signal.SIGKILL)
        line.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())


def _answer(main, places, here, environment, request):
    code = 1
    try:
        os.setpgid(0, 0)
        for standard, place in enumerate(places):
            os.dup2(place, standard)
            os.close(place)
        os.chdir(here)
        os.environ.clear()
        os.environ.update(environment)
        if "words" in request:
            code = _run_ranks(**request)
        else:
            sys.argv.append(json.dumps(request))
            code = main()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _run_ranks(ranks, words, seconds):
    """Run ``python -m words`` on each of ``ranks``, as torchrun does; return 0, or 1 if one fails or takes longer."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    started = []
    for rank in range(ranks):
        process = os.fork()
        if not process:
            signal.alarm(seconds)
            sizes = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
            os.environ.update({name: str(value) for name, value in sizes.items()})
            os.environ.update({"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)})
            return _run_module(words)
        started.append(process)
    return int(any([os.waitpid(process, 0)[1] for process in started]))


def _run_module(words):
    sys.argv = words
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code or 0
    return 0


if __name__ == "__main__":
    serve()
    # triton prints what is not freed at the end of a process
    os._exit(0)
