"""Compare divided modules with whole ones on two or four ranks: outputs and gradients in float64.

Every rank compares its part, and rank 0 prints the name of each comparison that passes.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import implicit_replication

import headcount as hc
from headcount.models import sharded
from headcount.models.build import build
from headcount.models.configs.moe_ffn import MixtureFeedForwardConfig
from headcount.models.configs.registry import ATTENTIONS
from tests.agreement import exchange

B, T, SEED = 2, 28, 3
MHA = ATTENTIONS["moh"](d_model=20, num_heads=4, head_dim=6, num_shared_heads=1, top_k=2)
MOA = ATTENTIONS["moa"](d_model=20, num_experts=8, top_k=3, head_dim=5)
MQA = ATTENTIONS["mha"](d_model=20, num_heads=8, num_kv_heads=1, head_dim=6, bias=True)
GQA = ATTENTIONS["moh"](d_model=20, num_heads=8, num_kv_heads=2, head_dim=6, num_shared_heads=1, top_k=2)
MLA = ATTENTIONS["mla"](d_model=20, num_heads=4, head_dim=6, kv_rank=7)
MIXTURE = MixtureFeedForwardConfig(d_model=20, d_ff=11, num_experts=8, top_k=3)
LLAMA = {"num_layers": 2, "d_model": 16, "d_ff": 24, "vocab_size": 68, "num_heads": 8}


def make(config):
    return build(config, dtype=torch.float64, seed=SEED)


def features(config):
    generator = torch.Generator().manual_seed(SEED)
    return torch.randn(B, T, config.d_model, dtype=torch.float64, generator=generator).requires_grad_()


def part(size, mesh=None):
    """Return this rank's slice of ``size`` elements that are divided over ``mesh`` (default: over all ranks)."""
    ranks, rank = (mesh.size(), mesh.get_local_rank()) if mesh else (dist.get_world_size(), dist.get_rank())
    each = size // ranks
    return slice(rank * each, (rank + 1) * each)


def assert_close(found, wanted, name):
    found = found.full_tensor() if isinstance(found, DTensor) else found
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12, msg=lambda text: f"{name}: {text}")


def output_and_gradient(run, x):
    """Return the output of ``run`` and the gradient of the output's sum of squares by the input."""
    y = run(x)
    y = y.full_tensor() if isinstance(y, DTensor) else y
    y.square().sum().backward()
    return y.detach(), x.grad


def heads(mesh):
    for config in (MHA, MLA, MQA, GQA):
        whole, layer = make(config), make(config)
        y, dx = output_and_gradient(whole, features(config))
        sharded.divide_heads(layer, mesh)
        with implicit_replication():
            found, gradient = output_and_gradient(layer, features(config))
        assert_close(found, y, "output")
        assert_close(gradient, dx, "gradient of the input")
        for name, parameter in layer.named_parameters():
            assert_close(parameter.grad, whole.get_parameter(name).grad, name)


def model(mesh, kv_heads=4):
    config = hc.preset("llama3-8b", LLAMA | {"num_kv_heads": kv_heads})
    whole, divided = make(config), make(config)
    tokens = torch.arange(B * T).view(B, T) % config.vocab_size
    sharded.divide_model(divided, mesh, sequence=True)
    y = whole(tokens)
    own = part(config.vocab_size)
    with implicit_replication():
        found = divided(tokens)
        assert_close(found, y[..., own], "logits")
        found.square().sum().backward()
    y.square().sum().backward()
    for name, parameter in divided.named_parameters():
        assert_close(parameter.grad, whole.get_parameter(name).grad, name)


def repeated_heads(mesh):
    """Fewer key/value heads than ranks."""
    for kv_heads in (1, 2):
        model(mesh, kv_heads)


def keys(mesh, send=exchange.gather_keys):
    for config in (MHA, MLA) if send is exchange.gather_keys else (MHA, MOA):
        whole, layer = make(config), make(config)
        y, dx = output_and_gradient(whole, features(config))
        send(layer, mesh)
        x = features(config).detach()[:, part(T)].clone().requires_grad_()
        found, gradient = output_and_gradient(layer, x)
        assert_close(found, y[:, part(T)], "output")
        assert_close(gradient, dx[:, part(T)], "gradient of the input")


def ring(mesh):
    keys(mesh, exchange.rotate_keys)


def heads_and_keys(mesh):
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("cp", "tp"))
    own = part(T, mesh["cp"])
    for config, send in ((MHA, exchange.gather_keys), (MLA, exchange.gather_keys), (MHA, exchange.rotate_keys)):
        whole, layer = make(config), make(config)
        y, dx = output_and_gradient(whole, features(config))
        sharded.divide_heads(layer, mesh["tp"])
        send(layer, mesh["cp"])
        x = features(config).detach()[:, own].clone().requires_grad_()
        with implicit_replication():
            found, gradient = output_and_gradient(layer, x)
        assert_close(found, y[:, own], "output")
        assert_close(gradient, dx[:, own], "gradient of the input")


def experts(mesh, run, own):
    for config in (MOA, MIXTURE):
        whole, layer = make(config), make(config)
        y, _ = output_and_gradient(whole, features(config))
        exchange.own_experts(layer, mesh)
        x = features(config).detach()[:, own].clone().requires_grad_()
        found, _ = output_and_gradient(lambda tokens, layer=layer: run(layer, tokens, mesh), x)
        assert_close(found, y[:, own], "output")
        name = next(name for name, _ in whole.named_parameters() if "router" not in name)
        of_experts = whole.get_parameter(name).grad[part(config.num_experts)]
        assert_close(layer.get_parameter(name).grad, of_experts, name)


def shared(mesh):
    experts(mesh, exchange.shared_experts, slice(None))


def sent(mesh):
    experts(mesh, exchange.sent_experts, part(T))


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    for check in (heads, model, repeated_heads, keys, ring, heads_and_keys, shared, sent):
        check(mesh)
        if dist.get_rank() == 0:
            print(check.__name__, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
