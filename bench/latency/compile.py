"""``python -m bench.latency.compile`` is deleted: tests/models/test_triton_compile.py compiles the Triton kernels."""

import sys

if __name__ == "__main__":
    print(f"python -m bench.latency.compile: error: {__doc__.partition(': ')[2]} Run make kernels.", file=sys.stderr)
    sys.exit(2)
