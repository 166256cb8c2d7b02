"""Every attention variant and every model by name: a line each. Importable without torch.

The file of each name defines its configuration; a TOML file of that name holds its presets and layers, where it
has some (see presets.py). formulas, models and bench/variants have a file of the same name.
"""

from importlib import import_module

from headcount.models.configs.base import CONFIGS, AttentionConfig, ModelConfig

VARIANTS = (
    "mha",
    "moa",
    "mae",
    "moh",
    "aggregated",
    "moh_aggregated",
    "mla",
    "switchhead",
)

MODEL_NAMES = (
    "encoder_decoder",
    "masked_lm",
    "convolution",
    "llama",
    "jetmoe",
    "deepseek",
    "decoder",
    "dit",
    "transnext",
)

for _name in (*VARIANTS, *MODEL_NAMES):
    import_module(f"headcount.models.configs.{_name}")
ATTENTIONS: dict[str, type[AttentionConfig]] = {name: CONFIGS[name] for name in VARIANTS}
MODELS: dict[str, type[ModelConfig]] = {name: CONFIGS[name] for name in MODEL_NAMES}
