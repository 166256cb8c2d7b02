"""transformers imports torchvision where that is installed, and its compiled operators may not fit this torch."""

from contextlib import suppress

from headcount.bench.errors import EnvironmentMissing
from headcount.bench.macs.torchvision_models import package

with suppress(EnvironmentMissing):
    package()
