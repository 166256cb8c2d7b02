"""Find a configuration of the Hugging Face hub: the local cache first, then one attempt to download it."""

import os
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from headcount.bench.errors import EnvironmentMissing
from headcount.bench.isolated.user_code import UserCodeError

TIMEOUT_S = float(os.environ.get("HF_HUB_DOWNLOAD_TIMEOUT") or 1)
"""Timeout of the hub in seconds. The name server of a machine without network may take far longer."""


def require_library(name: str) -> None:
    """Raise EnvironmentMissing, with the installation command, where the library ``name`` is not installed."""
    if find_spec(name) is None:
        raise EnvironmentMissing(f"this configuration needs {name}, which is not installed: pip install {name}")


def find_file(spec: str, file: str = "config.json") -> Path:
    """Return the path of a file of ``hf:NAME[@REVISION]``; its folder is called like the commit.

    Raises:
        EnvironmentMissing: the file is not in the cache and the hub does not answer.
        UserCodeError: the hub has no such repository, revision or file.
    """
    require_library("huggingface_hub")
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import disable_progress_bars

    name, _, revision = spec.removeprefix("hf:").partition("@")
    revision = revision or "main"
    try:
        cached = try_to_load_from_cache(name, file, revision=revision)
    except ValueError as error:
        raise UserCodeError(f"it is no hf:NAME[@REVISION]: {str(error).splitlines()[0]}") from error
    if isinstance(cached, str):
        return Path(cached)
    # hf_hub_download alone repeats its attempt for 20 s; in a thread, since a name server may take longer too
    url = hf_hub_url(name, file, revision=revision)
    attempt = ThreadPoolExecutor(1).submit(get_hf_file_metadata, url, timeout=TIMEOUT_S)
    try:
        error = attempt.exception(TIMEOUT_S)
    except TimeoutError:
        error = TimeoutError(f"no answer within {TIMEOUT_S:g} s")
    if error is None:
        disable_progress_bars()
        return Path(hf_hub_download(name, file, revision=revision))
    reason = f"{file} of {name} at revision {revision}: {str(error).strip().splitlines()[0]}"
    if isinstance(error, HfHubHTTPError):
        raise UserCodeError(f"the hub has no {reason}") from error
    raise EnvironmentMissing(f"not in the local cache, and the hub cannot be reached: {reason}") from error
