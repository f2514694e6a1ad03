# SPDX-License-Identifier: Apache-2.0
# ruff: noqa
# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
"""Decodes tokens on a GPU when told to, one JSON object a line; see gpu_decode.py. Needs torch and transformers."""

import json
import sys
import time
from contextlib import nullcontext

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=1024, intermediate_size=2816, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=8,
    vocab_size=32000, max_position_embeddings=4096,
)  # fmt: skip
model = LlamaForCausalLM(config).to(device="cuda", dtype=torch.bfloat16).eval()
prompt = torch.randint(0, 32000, (1, 64), device="cuda")
static = torch.zeros(1, 1, 1024, device="cuda", dtype=torch.bfloat16)


def eager(tokens):
    out = model(prompt, use_cache=True)
    past, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
    token.item()
    begin = time.perf_counter(), time.thread_time()
    for _ in range(tokens):
        out = model(token, past_key_values=past, use_cache=True)
        past, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
        token.item()
    return begin


def step():
    x = static
    for layer in model.model.layers:
        x = x + layer.mlp(x)
    return x


with torch.no_grad():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        result = step()


def graph(tokens):
    begin = time.perf_counter(), time.thread_time()
    for _ in range(tokens):
        captured.replay()
        result.sum().item()
    return begin


PROFILERS = {
    "torch profiler, CUDA": [ProfilerActivity.CUDA],
    "torch profiler, CPU and CUDA": [ProfilerActivity.CPU, ProfilerActivity.CUDA],
}
print(json.dumps({"gpu": torch.cuda.get_device_name()}), flush=True)
with torch.no_grad():
    for line in sys.stdin:
        wish = json.loads(line)
        activities = PROFILERS.get(wish["profiler"])
        with profile(activities=activities) if activities else nullcontext():
            wall, cpu = {"eager": eager, "graph": graph}[wish["loop"]](wish["tokens"])
            took = time.perf_counter() - wall, time.thread_time() - cpu
        print(json.dumps({"tokens": wish["tokens"], "wall_s": took[0], "cpu_s": took[1]}), flush=True)
