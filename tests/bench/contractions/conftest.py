"""transformers imports torchvision where it is installed; its compiled operators may not fit this torch."""

from contextlib import suppress

from tests.torchvision_import import import_models

with suppress(ModuleNotFoundError):
    import_models()
