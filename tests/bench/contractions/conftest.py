"""Import torchvision before transformers does: its compiled operators may not fit this version of torch."""

from contextlib import suppress

from tests.torchvision_import import import_models

with suppress(ModuleNotFoundError):
    import_models()
