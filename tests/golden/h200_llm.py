# SPDX-License-Identifier: Apache-2.0
# ruff: noqa
# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
"""A small LLM with random weights that answers marked requests, eager and with a CUDA graph; needs a GPU, torch, transformers.

Made the packaged recording on an H200::

    fencepath record -o h200-llm.fencepath -- python h200_llm.py
    python h200_llm.py profile          # counts of CUPTI's callbacks, by torch's profiler, for comparison
"""

import json
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fencepath import mark

mode = sys.argv[1] if len(sys.argv) > 1 else "plain"
torch.manual_seed(0)
cfg = LlamaConfig(
    hidden_size=1024,
    intermediate_size=2816,
    num_hidden_layers=8,
    num_attention_heads=16,
    num_key_value_heads=8,
    vocab_size=32000,
    max_position_embeddings=2048,
)
model = LlamaForCausalLM(cfg).to(device="cuda", dtype=torch.bfloat16).eval()
generator = torch.Generator().manual_seed(1)


def eager(name, prompt, tokens):
    ids = torch.randint(0, 32000, (1, prompt), generator=generator)
    with mark.request(name), torch.no_grad():
        with mark.phase("prefill"):
            out = model(ids.cuda(), use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
            token.item()
            mark.token(1)
        with mark.phase("decode"):
            past = out.past_key_values
            for index in range(2, tokens + 1):
                out = model(token, past_key_values=past, use_cache=True)
                past = out.past_key_values
                token = out.logits[:, -1:].argmax(-1)
                token.item()
                mark.token(index)


# a decode step as a CUDA graph: the layers on a fixed input, as engines replay them
static = torch.zeros(1, 1, 1024, device="cuda", dtype=torch.bfloat16)
mlps = [layer.mlp for layer in model.model.layers]


def step():
    x = static
    for mlp in mlps:
        x = x + mlp(x)
    return x


with torch.no_grad():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()


def graphed(name, tokens):
    with mark.request(name), torch.no_grad(), mark.phase("decode"):
        for index in range(1, tokens + 1):
            graph.replay()
            out.sum().item()
            mark.token(index)


def big(name):
    """One request that really waits for the device."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    with mark.request(name), mark.phase("prefill"):
        b = a
        for _ in range(17):
            b = a @ b
        torch.cuda.synchronize()


eager("warm", 31, 3)
graphed("warm-graph", 2)
big("warm-big")
torch.cuda.synchronize()


def run():
    for number, (prompt, tokens) in enumerate(((101, 5), (211, 3))):
        eager(f"req-{number}", prompt, tokens)
    graphed("req-graph", 13)
    big("req-big")


if mode == "profile":
    from collections import Counter
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    counts = Counter(event.name for event in profiler.events() if event.name.startswith("cu"))
    print(json.dumps(dict(counts)))
else:
    begin = time.time()
    run()
    torch.cuda.synchronize()
    print("wall", time.time() - begin)
