"""``python -m bench.latency.compile`` is deleted: exit with 2 and name its replacement."""

import sys

MESSAGE = "deleted; make kernels compiles the Triton kernels (tests/models/test_triton_compile.py)"

if __name__ == "__main__":
    print(f"python -m bench.latency.compile: error: {MESSAGE}", file=sys.stderr)
    sys.exit(2)
