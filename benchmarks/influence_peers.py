"""rlsift's exact influence against libraries that score per-sample gradients, on the same gradients.

    python benchmarks/influence_peers.py run DIR --peers-python PEERS/bin/python   # everything, one after the other
    python benchmarks/influence_peers.py make DIR          # policy, pool, reference; rlsift and plain autograd measured
    PEERS/bin/python benchmarks/influence_peers.py peer NAME DIR                   # one library at one batch size
    python benchmarks/influence_peers.py table DIR         # markdown, and benchmarks/results/influence_peers.json

`make` and `table` run where rlsift is installed, `peer` where the libraries are: see benchmarks/README.md.

The objective of a prompt is the weighted sum of its tokens' ratios π/β. The behaviour log-probs are the policy's
own, so that its gradient is that of Σ weight · log π, which every library can be given.
Suffixes: N prompts, K trajectories of each, V queries of R trajectories, S tokens, T of them the completion,
B samples, P parameters (one entry for each tensor).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import processor
from peers_libraries import HERE, PEERS
from peers_pool import load_pool, make
from safetensors.torch import load_file

MEASURE_AGAIN_WITHIN_S = 60.0
RESULTS = Path(__file__).parent / "results" / "influence_peers.json"


def measure(name: str, directory: Path, *, batch: int, repeats: int) -> None:
    """Writes measured/NAME-BATCH.json. Runs in a process of its own."""
    peer = PEERS[name]
    pool = load_pool(directory)
    score = peer.prepare(pool, batch)
    before = _memory_mib("VmRSS")
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) < MEASURE_AGAIN_WITHIN_S:
        start = time.perf_counter()
        dots_NV = score()
        seconds.append(time.perf_counter() - start)
    reference = load_file(directory / "reference.safetensors")
    linear_P, entries_P = reference["linear_P"], reference["entries_P"]
    covered_P = linear_P if peer.linear_only else torch.ones_like(linear_P)
    _write_json(
        directory / "measured" / f"{name}-{batch}.json",
        {
            "name": name,
            "route": peer.route,
            "version": importlib.metadata.version(peer.package),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "batch_prompts": 1 if peer.one_by_one else batch,
            "seconds": seconds,
            "rss_before_mib": before,
            "rss_peak_mib": _memory_mib("VmHWM"),
            "parameters_covered": float(entries_P[covered_P].sum() / entries_P.sum()),
            "against_all": _agreement(dots_NV, reference["dots_NVP"].sum(-1).numpy()),
            "against_covered": _agreement(dots_NV, reference["dots_NVP"][..., covered_P].sum(-1).numpy()),
        },
    )


def _memory_mib(field: str) -> float:
    """Of this process from /proc. Not getrusage: ru_maxrss goes over from the parent that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


def _agreement(found_NV: np.ndarray, expected_NV: np.ndarray) -> dict[str, float]:
    """The error is the largest over all entries relative to the largest entry; the rest are means over queries."""
    N = len(expected_NV)
    top = math.ceil(N / 10)
    ranks_found, ranks_expected = (values.argsort(0).argsort(0) for values in (found_NV, expected_NV))
    columns = list(zip(ranks_found.T, ranks_expected.T, strict=True))
    return {
        "error": float(np.abs(found_NV - expected_NV).max() / np.abs(expected_NV).max()),
        "spearman": float(np.mean([np.corrcoef(found, expected)[0, 1] for found, expected in columns])),
        "precision_at_10_percent": float(
            np.mean([np.mean(expected[found >= N - top] >= N - top) for found, expected in columns])
        ),
    }


def spawn(python: str, name: str, directory: Path, *, batch: int, repeats: int, threads: int) -> None:
    """One measurement in a fresh process; what it dies of is a result too."""
    options = {"--batch": batch, "--repeats": repeats, "--threads": threads}
    command = [
        python,
        __file__,
        "peer",
        name,
        str(directory),
        *(str(word) for pair in options.items() for word in pair),
    ]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:] or [f"exit status {done.returncode}"]
        content = {"name": name, "route": PEERS[name].route, "batch_prompts": batch, "failed": last[0].strip()}
        _write_json(directory / "measured" / f"{name}-{batch}.json", content)
    print(f"{name} batch {batch}: {'failed' if done.returncode else 'done'}", file=sys.stderr, flush=True)


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


# --- the table --------------------------------------------------------------------------------------------------


def table(directory: Path) -> str:
    """Each library at its fastest batch size, against rlsift at its own fastest."""
    measured = [json.loads(path.read_text()) for path in sorted((directory / "measured").glob("*.json"))]
    best: dict[str, dict[str, Any]] = {}
    for name in PEERS:
        candidates = [m for m in measured if m["name"] == name]
        ran = [m for m in candidates if "failed" not in m]
        if candidates:
            best[name] = min(ran, key=lambda m: min(m["seconds"])) if ran else candidates[0]
    unit = min(best["rlsift"]["seconds"])
    pool = load_file(directory / "pool.safetensors")
    reference = load_file(directory / "reference.safetensors")
    N, K, S = pool["tokens_NKS"].shape
    lengths_NV = torch.outer(reference["squared_norms_NP"].sum(-1), reference["squared_norms_VP"].sum(-1)).sqrt()
    cosines_NV = reference["dots_NVP"].sum(-1) / lengths_NV
    content = {
        "setting": {
            "parameters": int(reference["entries_P"].sum()),
            "prompts": N,
            "trajectories_per_prompt": K,
            "tokens_per_trajectory": S,
            "completion_tokens": pool["weights_NKT"].shape[-1],
            "queries": list(pool["query_rewards_VGK"].shape[:2]),
            "cosine_std": float(cosines_NV.std()),
            "processor": processor(),
        },
        "best": best,
        "measured": measured,
    }
    _write_json(RESULTS, content)
    lines = [
        "| library | route | batch | time, s | ÷ rlsift | peak RSS, MiB | above the loaded model | parameters covered "
        "| error, all parameters | error, covered | Spearman | precision@10 % |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, m in best.items():
        if "failed" in m:
            lines.append(f"| {name} | {m['route']} | {m['batch_prompts']} | {m['failed']} |" + " |" * 8)
            continue
        seconds, whole, covered = min(m["seconds"]), m["against_all"], m["against_covered"]
        cells = [
            f"{name} {m['version']}",
            m["route"],
            str(m["batch_prompts"]),
            f"{seconds:.2f}",
            f"{seconds / unit:.2f}",
            f"{m['rss_peak_mib']:.0f}",
            f"{m['rss_peak_mib'] - m['rss_before_mib']:.0f}",
            f"{m['parameters_covered']:.1%}",
            f"{whole['error']:.1e}",
            f"{covered['error']:.1e}",
            f"{whole['spearman']:.4f}",
            f"{whole['precision_at_10_percent']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("run", "make", "peer", "table"):
        sub = commands.add_parser(command)
        if command == "peer":
            sub.add_argument("name", choices=PEERS)
            sub.add_argument("--batch", type=int, default=16, help="prompts in a micro-batch")
        sub.add_argument("directory", type=Path)
        sub.add_argument("--threads", type=int, default=2)
        if command in ("run", "make"):
            sub.add_argument("--seed", type=int, default=0)
            sub.add_argument("--prompts", type=int, default=64)
            sub.add_argument("--trajectories", type=int, default=4)
            sub.add_argument("--query-prompts", type=int, default=8, help="held-out prompts of each query")
            sub.add_argument("--prompt-tokens", type=int, default=32)
            sub.add_argument("--completion-tokens", type=int, default=32)
            sub.add_argument("--vocabulary", type=int, default=512)
            sub.add_argument("--hidden", type=int, default=256)
            sub.add_argument("--intermediate", type=int, default=832)
            sub.add_argument("--layers", type=int, default=6)
            sub.add_argument("--batches", type=int, nargs="+", default=[4, 16], help="each is measured")
        if command in ("run", "make", "peer"):
            sub.add_argument("--repeats", type=int, default=3, help="fewer, once a minute is spent")
        if command == "run":
            sub.add_argument("--peers-python", required=True, help="the interpreter that has the libraries")
            sub.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.command == "peer":
        measure(args.name, args.directory, batch=args.batch, repeats=args.repeats)
    if args.command in ("run", "make"):
        make(args.directory, args)
        there = [name for name in args.only if name not in HERE] if args.command == "run" else []
        for name in [*HERE, *there]:
            peer, python = PEERS[name], sys.executable if name in HERE else args.peers_python
            sizes = [1] if peer.one_by_one else [args.prompts] if peer.one_batch else args.batches
            for batch in sizes:
                spawn(python, name, args.directory, batch=batch, repeats=args.repeats, threads=args.threads)
    if args.command in ("run", "table"):
        print(table(args.directory))


if __name__ == "__main__":
    main()
