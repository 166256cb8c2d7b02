"""Measure the time of each kernel of a call with torch's profiler."""

import os
from collections.abc import Callable
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, supported_activities

from headcount.bench.latency.timing import synchronize


def profile_kernels(call: Callable[[int], object], device: str) -> list[dict[str, Any]] | None:
    """Return the name, the calls and the microseconds of each kernel of one call, longest first.

    Kernels are those of the GPU; without one, operators of torch, each without those that it calls. None where the
    profiler sees nothing or fails: a row is as good without its kernels.
    """
    on_gpu = device == "cuda" and ProfilerActivity.CUDA in supported_activities()
    activity, kind = (ProfilerActivity.CUDA, DeviceType.CUDA) if on_gpu else (ProfilerActivity.CPU, DeviceType.CPU)
    # the profiler reports each start and stop on stderr, as its most severe level
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    try:
        with profile(activities=[activity], acc_events=True) as seen:
            call(0)
            synchronize(device)
        events = [event for event in seen.key_averages() if event.device_type == kind]
    except RuntimeError:
        return None
    found = []
    for event in events:
        us = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        found.append({"name": event.key, "calls": event.count, "us": round(us, 3)})
    return sorted((kernel for kernel in found if kernel["us"] > 0), key=lambda kernel: -kernel["us"]) or None
