"""Wrong command lines: exit code, one line on standard error, and the values that the line must name.

The words are values and valid choices. Whole sentences are in the golden files only, because they may be reworded.
"""

import pytest

from tests.golden.conftest import run

CLOSED = "--counter closed-form"
PRESET = f"count transformer-base {CLOSED}"
CONVERT = "convert llama3-8b"
DERIVE = "derive --preset moa-8K8E128D --vars"
BUDGET = "budget --macs 1G"
MOH = "budget moh-llm-s-75 --macs 400G"
ROUTING = (
    "routing --checkpoint model.pt --preset mlm-moa-8K8E128D "
    "--set d_model=6 --set d_ff=5 --set num_layers=2 --set vocab_size=11 --set top_k=2 --set num_experts=3 "
    "--set head_dim=4 --tokens"
)
CAMPAIGN = "latency campaign --device cpu --out-dir d"

HEADCOUNT = [
    ("tabel", 2, ["'tabel'", "table"]),
    ("xyz", 2, ["'xyz'", "table", "routing"]),
    ("--format json", 2, ["--format json"]),
    ("--print-completion fish", 2, ["'fish'", "bash", "zsh"]),
]
COUNTS = [
    ("macs --grid K=1", 2, ["'macs'", "grid"]),
    (f"table {CLOSED} --out out.xlsx", 2, [".xlsx", ".txt", ".md", ".csv", ".json", ".tex"]),
    (f"count moa-8K8E128D {CLOSED} --set K=9", 2, ["top_k", "1..8", "9"]),
    (f"grid 'k=1 e=8 D=4 T=7' {CLOSED}", 2, ["'k'", "did you mean K"]),
    (f"grid 'h=6 g=2 g=3 T=7' {CLOSED}", 2, ["'g'"]),
    (f"count dit-s2 {CLOSED} --seq-len 10", 2, ["dit has no seq_len", "batch_size", "image"]),
    ("budget --macs 1.2GB", 2, ["MACs", "bytes", "1.2G"]),
    ("fit llama3-8b --train --ranks 64 --global-batch 9", 2, ["unrecognized", "headcount budget takes --global-batch"]),
    ("count llama3-8b --counter torch fvcor", 2, ["'fvcor'", "fvcore"]),
    ("count --counter torch llama3-8b", 2, ["invalid choice: 'llama3-8b'"]),
    ("count --seq-len 8", 2, ["required: TARGET"]),
    ("count gpt2", 2, ["gpt2", "preset", "FILE.py:FUNCTION", "config.json", "hf:NAME"]),
    ("count model.py:make --decode --context 0", 2, ["--context", "0"]),
    ("table --parms", 2, ["--parms", "--params"]),
    ("table moa-tabel3", 2, ["'moa-tabel3'", "moa-table3"]),
    ("table --counter thop", 2, ["'thop'", "closed-form", "ptflops-aten", "fvcore", "torch", "all"]),
    (f"table {CLOSED} --device tpu", 2, ["'tpu'", "cpu", "meta", "cuda"]),
    ("table --device cuda", 3, ["CUDA", "cpu", "meta"]),
    ("count moa-8k8e128d", 2, ["'moa-8k8e128d'", "moa-8K8E128D"]),
    ("count moa-8K8E128D --set top_k", 2, ["top_k=VALUE"]),
    ("count moa-8K8E128D --set bias=2", 2, ["bias", "true", "false", "'2'"]),
    ("count moa-8K8E128D --set num_expert=4", 2, ["'num_expert'", "num_experts"]),
    ("count transformer-base --set num_heads=7", 2, ["7", "512"]),
    (f"{PRESET} --seq-len 0", 2, ["seq_len", "0"]),
    (f"{PRESET} --seq-len x", 2, ["--seq-len", "'x'"]),
    ("count mlm-transformer --seq-len 129", 2, ["max_positions - 2 = 128", "129"]),
    ("table moa-table1 --seq-len 0", 2, ["unrecognized", "--seq-len"]),
    ("count moa:K=2,Q=3", 2, ["'Q'", "d_m (d_model), E (num_experts)", "T, S and B are lengths"]),
    ("count moa:K=2,E=5,D=7,d_m=11", 2, ["needs its length;", "T=128"]),
    ("count moh:h=8,d_m=512", 2, ["needs its length and s (num_shared_heads), r (top_k);", "T=128"]),
    ("count moa --counter closed-form", 2, ["moa:LETTER=N"]),
    ("count model.py:make --counter closed-form", 2, ["no closed form", "preset"]),
    ("count llama3-8b llm-s --counter torch", 2, ["one TARGET", "closed-form"]),
    ("count llama3-8b --rules palm 6n --columns mfu", 2, ["headcount compare TARGET --rules palm 6n"]),
    ("count llama3-8b --counter closed-form --plot a.pdf", 2, ["--plot", "closed forms"]),
    ("count llama3-8b --counter closed-form --dtype half", 2, ["--dtype", "closed forms"]),
    ("count llama3-8b --plan tp=2 --context 7", 2, ["--context", "--plan"]),
    ("grid moe:K=2,E=5,D=7,T=3", 2, ["'moe'", "moa"]),
    ("latency --layer mha-base moa:K=2", 2, ["d_m (d_model), E (num_experts), D (head_dim)"]),
    ("count llama3-8b --set no_field=1 --set num_layers=2", 2, ["no_field", "num_layers"]),
    ("budget llama3-8b --preset llama3-405b --params 1G", 2, ["unrecognized", "--preset"]),
    ("grid 'K=1,x E=8'", 2, ["'K=1,x'"]),
    ("grid 'Q=1 E=8'", 2, ["'Q'", "h, d_h, g", "K, E, D"]),
    ("grid 'K=1 K=2'", 2, ["'K'"]),
    ("grid 'K=0 E=8 D=4 T=1'", 2, ["K=0"]),
    ("grid 'D=1 g=8 T=3'", 2, ["MHA", "h, d_h, g", "MoA", "K, E, D"]),
    ("grid 'K=1 T=3'", 2, ["E, D"]),
    ("grid 'K=9 E=8 D=4 T=1'", 2, ["K=9"]),
    ("grid /nonexistent.toml", 2, ["/nonexistent.toml", "No such file or directory"]),
    ("audit --columns kv_bytes", 2, ["unrecognized", "--columns"]),
    ("audit --set n=7", 2, ["--set", "TARGET"]),
    ("compare moa-8K8E128D transformer-base --preset llm-s", 2, ["unrecognized", "--preset"]),
    ("compare a b.txt", 2, ["cannot read b.txt"]),
    ("compare llm-s llama3-8b --input 5,7", 2, ["--input is no option", "llm-s takes --set", "--seq-len"]),
    (
        "compare model.py:make model.py:make --seq-len 5",
        2,
        ["--seq-len: make has no parameter seq_len or T"],
    ),
    ("compare llama3-8b --plan tp=2 --plan tp=4 --dtype half", 2, ["--dtype does not go with --plan"]),
    ("compare llama3-8b --plan tp=2", 2, ["two plans for one model"]),
    ("compare llama3-8b mistral-7b --plan tp=2 --plan tp=4", 2, ["one plan for two"]),
    ("compare llama3-8b", 2, ["--rules palm 6n"]),
    ("count llama3-8b,T=64 --seq-len 32", 2, ["seq_len is 64 in the target", "--seq-len 32"]),
    ("compare llama3-8b llm-s --rules palm 6n", 2, ["2 models", "A --rules palm 6n"]),
    ("compare llama3-8b llm-s --rules palm --columns mfu", 2, ["--seconds"]),
    (f"compare llm-s llm-b {CLOSED} --columns kv_byte", 2, ["'kv_byte'; did you mean kv_bytes", "these tables have"]),
    (f"grid 'K=2 E=5 D=7 T=13' {CLOSED} --columns verdict", 2, ["unknown column 'verdict'"]),
    ("count llama3-8b --plan tp=2 --columns rank_mac", 2, ["no column 'rank_mac'; did you mean rank_macs"]),
    ("count llama3-8b --counter closed-form --plan tp=3", 2, ["tp=3 does not divide h = 32; nearest that fit: 2, 4"]),
    ("count --plan tp=2", 2, ["TARGET"]),
    ("count llama3-8b --reduce-bytes 4", 2, ["--reduce-bytes", "--plan"]),
    ("count llama3-8b --plan tp=2 --reduce-bytes 0", 2, ["--reduce-bytes", "positive integer", "'0'"]),
    ("count model.py:make --plot a.xlsx", 2, ["'a.xlsx'"]),
    ("count model.py:make --plot missing/a.pdf", 2, ["missing/a.pdf"]),
    (f"{PRESET} --columns kv", 2, ["'kv'", "kv_token_bytes", "kv_bytes", "--list"]),
    (f"{PRESET} --columns kv_bytes kv_bytes", 2, ["kv_bytes, kv_bytes"]),
    (f"{PRESET} --columns decode_bound --peak-macs 1", 2, ["decode_bound", "needs --bandwidth"]),
    (f"{PRESET} --columns kv_bytes --peak-macs inf", 2, ["--peak-macs", "'inf'"]),
    (f"{PRESET} --context 7", 2, ["--context", "--columns"]),
    (f"{CONVERT} s=16 r=17", 2, ["num_heads - num_shared_heads", "17"]),
    (f"{CONVERT} h=16", 2, ["'h=16'", "s=N r=N", "router"]),
    (f"{CONVERT} s=1 r=1 router=best", 2, ["linear", "query_norm", "best"]),
    ("convert moa-8K8E128D s=1 r=1", 2, ["mha", "moa"]),
    ("convert s=1 r=1", 2, ["PRESET s=16 r=8"]),
    ("table gpt3-d1 --columns kv_bytes", 2, ["--columns", "gpt3-d1"]),
    ("compare transformer-base --rules palm 6n", 2, ["transformer-base", "src_len"]),
    ("compare mlm-transformer --rules deepseek_causal maxtext", 2, ["deepseek_causal", "not causal", "palm"]),
    ("audit away.py:make", 2, ["away.py"]),
    ("audit model.py:gone", 2, ["model.py", "gone"]),
    ("count model.py:make --set width=3", 2, ["model.py:make", "width"]),
    ("count model.py:make --seq-len 7", 2, ["--seq-len: make has no parameter seq_len or T", "--input"]),
    ("count model.py:spectrum --counter headcount --formula _fft_r2c=a0*", 2, ["a0*"]),
    ("count model.py:elementwise --counter headcount --elementwise refuse", 1, ["mul", "sum"]),
]
LATENCY = [
    ("latency --layer moa", 2, ["'moa'", "moa-8K8E128D"]),
    ("latency --model gpt", 2, ["'gpt'", "--list"]),
    ("latency --layer mha-base --implementation fast", 2, ["mha", "fast", "reference, fused, packed, compiled, auto"]),
    ("latency --layer moa-8K8E128D --implementation triton", 2, ["triton", "CUDA"]),
    ("latency --model transformer-base --pass decode", 2, ["--pass", "forward", "both"]),
    ("latency --blocks 10001", 2, ["--blocks", "10,000", "10001"]),
    ("latency --within nan", 2, ["--within", "'nan'"]),
    ("latency --tokens 8 --batch-size 2", 2, ["--tokens", "--batch-size"]),
    ("latency --json a --out-dir b", 2, ["--json", "--out-dir"]),
    ("latency --dtype int8", 2, ["'int8'", "float32", "bfloat16"]),
    ("latency --on h200-sxm", 2, ["--on", "--estimate"]),
    ("latency --estimate --device cpu", 2, ["--on CARD", "cpu"]),
    ("latency --estimate --on h300", 2, ["H200 SXM", "H100 SXM", "h300"]),
    ("latency --device cuda", 3, ["CUDA", "cpu"]),
    ("latency compare a.jsonl", 2, ["B"]),
    ("latency compare a.jsonl elsewhere.jsonl", 2, ["another CPU", "--force"]),
    ("latency campaign --blocks 1", 2, ["--out-dir"]),
    (f"{CAMPAIGN} --dtype float64", 2, ["'float64'", "bfloat16", "float16", "float32"]),
    ("latency campaign --out-dir d", 3, ["CUDA", "cpu"]),
    ("latency nothing", 2, ["'nothing'", "FILE.py:FUNCTION", "config.json"]),
    ("latency llama3-8b --plan tp=2", 2, ["2 ranks", "--nproc-per-node 2"]),
    ("latency llama3-8b --plan cp=2", 2, ["tp, sp, dp and fsdp"]),
    ("latency transformer-base --plan dp=2", 2, ["LLaMA"]),
]
FIT = [
    ("fit llama3-8b --on H100", 2, ["H100 SXM"]),
    ("fit llama3-8b --on 0", 2, ["80G"]),
    ("fit llama3-8b --on 'V100 SXM2'", 2, ["--on 32G"]),
    ("fit llama3-8b --on 80G --train --context 5", 2, ["--seq-len"]),
    ("fit llama3-8b --on 80G --ranks 2 --plan tp=2", 2, ["finds"]),
    ("fit llama3-8b --on 80G --input 1,5", 2, ["lengths"]),
    ("fit llama3-8b --on 80G --dtype int", 2, ["float32"]),
]
DERIVE_BUDGET = [
    ("derive --vars T", 2, ["--preset", "--module"]),
    ("derive --preset transformer-base --module m.py:f --vars T", 2, ["--preset", "--module"]),
    ("derive --preset transformer-base --vars ,", 2, ["--vars"]),
    ("derive --preset moa --vars T", 2, ["'moa'", "moa-8K8E128D"]),
    ("derive --preset transformer-base --vars lambda", 2, ["'lambda'"]),
    ("derive --preset moh-dit-l2-90 --part model --vars h", 2, ["'h'"]),
    ("derive --preset transformer-base --part model --vars N_enc --base N_enc=1000000000", 2, ["10,000"]),
    (f"{DERIVE} T,q", 2, ["'q'", "B (batch_size)"]),
    (f"{DERIVE} K,top_k", 2, ["K,top_k"]),
    (f"{DERIVE} T,h,T", 2, ["T"]),
    (f"{DERIVE} T,D --base K=3", 2, ["'K'", "T, D"]),
    (f"{DERIVE} T --base T=0", 2, ["'T=0'", "T=START:STEP"]),
    (f"{DERIVE} K --base K=9", 2, ["K=9", "1..8"]),
    (f"{DERIVE} T --part head", 2, ["'head'", "attention", "feed-forward", "model"]),
    ("derive --module model.py:make --vars n,q", 2, ["model.py:make", "'q'"]),
    ("derive --module model.py:at_most_13 --vars T", 2, ["T=14", "ValueError", "at most 13", "--base"]),
    ("budget", 2, ["--macs", "--params", "--active-params", "--kv-bytes", "--match-model"]),
    ("budget --macs 2G:1G", 2, ["'2G:1G'"]),
    ("budget --macs 100M", 2, ["100,000,000", "422,191,360"]),
    (f"{BUDGET} --match-metric params", 2, ["--match-metric", "--match-model"]),
    (f"{BUDGET} --range h=2", 2, ["'h'", "K, E, D"]),
    (f"{BUDGET} --range K=a", 2, ["'K=a'", "K=1:64"]),
    (f"{BUDGET} --range K=5:4", 2, ["K=5:4"]),
    (f"{BUDGET} --range K=1:4:0", 2, ["malformed", "K=1:4:0"]),
    (f"{BUDGET} --range K=1:1000000000", 2, ["10,000"]),
    (f"{BUDGET} --range K=9 E=8", 2, ["K <= E"]),
    (f"{BUDGET} --attention aggregated", 2, ["'aggregated'", "mha", "moa", "moh"]),
    (f"{BUDGET} --set top_k=4", 2, ["top_k", "--range K=4"]),
    (f"{BUDGET} --limit -1", 2, ["--limit", "'-1'"]),
    (f"{BUDGET} --device cuda", 3, ["CUDA"]),
    ("budget --match-model transformer-big transformer-base", 2, ["--match-model", "TARGET"]),
    ("budget transformer-bas --macs 1G", 2, ["'transformer-bas'", "transformer-base"]),
    ("budget --match-model transformer-big --tolerance 2", 2, ["--tolerance", "'2'"]),
    ("budget --match-model dit-s2 --kv-bytes 7G", 2, ["dit-s2", "kv-bytes"]),
    ("budget --match-model lightconv --attention moa --layers 3", 2, ["no number of layers"]),
    ("budget config.json --ranks 8 --global-batch 8 --bytes 40G", 2, ["needs its length", "--seq-len"]),
    ("budget --ranks 8 --bytes 1G", 2, ["a preset or config.json", "--global-batch"]),
    (f"{MOH} --range s=-1", 2, ["'s=-1'", "at least 0"]),
    (f"{MOH} --range s=0 r=0", 2, ["1 <= s + r <= h", "g divides h"]),
    (f"{MOH} --range d_h=7,9", 2, ["head_dim", "9"]),
    (f"{MOH} --set attention=mha", 2, ["--attention", "--set"]),
]
ROUTING_LOCK = [
    ("routing", 2, ["--checkpoint", "--preset", "--tokens", "--example"]),
    ("routing --checkpoint x --preset x --tokens x --record", 2, ["--record", "--example"]),
    ("routing --example --tokens x", 2, ["--tokens", "--example"]),
    ("routing --example moh", 2, ["moh"]),
    ("routing --example --min-count 0", 2, ["--min-count", "0"]),
    ("routing --checkpoint x --tokens x --preset x", 2, ["'x'"]),
    ("routing --checkpoint x --tokens x --preset moh-dit-s2-90", 2, ["dit"]),
    (f"{ROUTING} model.py", 2, ["model.py", "line 1"]),
    (f"{ROUTING.replace('model.pt', 'tokens.txt')} tokens.txt", 2, ["tokens.txt"]),
    (f"{ROUTING} tokens.txt --checkpoint tokens.txt", 2, ["--checkpoint is given twice", "one file"]),
    ("fit llama3-8b --on h100-sxm --on h200-sxm", 2, ["--on is given twice; it takes one card"]),
    (f"{ROUTING} tokens.txt --format csv", 2, ["CSV"]),
    ("lock", 2, ["TARGET", "--check", "--update"]),
    ("lock --check model.py", 2, ["model.py", "JSON"]),
    ("lock --check a.lock --update b.lock", 2, ["--update", "--check"]),
    ("lock --update a.lock --out b.lock", 2, ["--update", "--out"]),
    ("lock model.py:make --format md", 2, ["--format md", "--check"]),
    ("lock model.py:make --max macs=1.2GB", 2, ["macs=1.2GB"]),
    ("lock model.py:make --max mac=1", 2, ["mac=1", "macs and params"]),
    ("lock model.py:make --device cuda", 3, ["CUDA"]),
    ("lock model.py:make -o .", 2, ["one file"]),
]
ENDINGS = [
    ([f"table moa-table3 {CLOSED} --check"], 0),
    (["count model.py:spectrum --counter headcount --allow-unsupported"], 0),
    (["lock model.py:make -o macs.lock", "lock --check macs.lock model.py:away"], 2),
]
"""Lines and the exit code of the last one; the others end with 0, and no output is checked."""
ROWS = HEADCOUNT + COUNTS + LATENCY + FIT + DERIVE_BUDGET + ROUTING_LOCK


@pytest.mark.parametrize("line, code, words", ROWS, ids=[line for line, _, _ in ROWS])
def test_error(line, code, words, folder):
    before = sorted(folder.iterdir())
    ended = run(line)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("headcount") and ended.err.count("\n") == 1
    assert [word for word in words if word not in ended.err] == []
    assert [path for path in sorted(folder.iterdir()) if path not in before and path.name != "__pycache__"] == []


@pytest.mark.parametrize("lines, code", ENDINGS, ids=[lines[-1] for lines, _ in ENDINGS])
def test_exit_code(lines, code, folder):
    assert [run(line).code for line in lines] == [*[0] * (len(lines) - 1), code]
