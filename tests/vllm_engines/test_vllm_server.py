"""The real vLLM server, started here as it would run elsewhere. `make test-vllm` runs this."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from vllm_cases import nudge, small_policy

from pipeline_lib.config import Generation, VllmServer
from pipeline_lib.policy import Policy
from pipeline_lib.rollout import EngineMismatch, SamplingParams, check_agreement, make_engine
from pipeline_lib.rollout.engine import EngineFailed

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed; run `make test-vllm`"),
    pytest.mark.timeout(1200),
]
PATIENCE = 600.0


class Server:
    def __init__(self, directory: Path, policy: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        options = ["--dtype", "float32", "--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
        options += ["--max-model-len", "128", "--enforce-eager", "--host", "127.0.0.1", "--port", str(port)]
        environment = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
        self.log = directory / "server.log"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                # What `vllm serve` comes to; it asks for the version of a package that the CPU twin is not called.
                [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(policy), *options],
                env=os.environ | environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self.log.read_text()[-3000:]
            try:
                if httpx.get(f"{self.url}/health", timeout=5).is_success:
                    return
            except httpx.TransportError:
                time.sleep(0.5)
        raise AssertionError(self.log.read_text()[-3000:])

    def end(self) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return small_policy(tmp_path_factory.mktemp("policy") / "served", tied=True)


@pytest.fixture(scope="module")
def server(policy: Policy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    from socket import socket

    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Server(tmp_path_factory.mktemp("server"), Path(policy.model.name_or_path), port)
    try:
        server.wait()
        yield server
    finally:
        server.end()


def generation(server: Server, shared: Path) -> Generation:
    engine = VllmServer(base_url=server.url, shared_directory=str(shared), seeded=False)
    return Generation(engine=engine, temperature=0.7, max_tokens=24)


def test_a_server_samples_with_token_ids_and_logprobs_and_takes_new_weights(
    server: Server, policy: Policy, tmp_path: Path
) -> None:
    with closing(make_engine(generation(server, tmp_path), policy)) as engine:
        params = SamplingParams(n=3, temperature=0.7, max_tokens=12, batch_size=6)
        groups = engine.generate([[1, 5, 6], [1, 7], [1, 8, 9, 10]], params, seed=0)
        assert [len(group) for group in groups] == [3, 3, 3]
        assert all(len(c.token_ids) == len(c.logprobs) for group in groups for c in group)
        nudge(policy, 1)
        with pytest.raises(EngineMismatch):
            check_agreement(engine, policy, temperature=0.7)
        engine.load_weights(policy.model.state_dict())
        assert check_agreement(engine, policy, temperature=0.7) < 1e-4
        assert not any(tmp_path.iterdir())


def test_a_server_of_another_policy_is_refused_at_the_start(server: Server, tmp_path: Path) -> None:
    other = small_policy(tmp_path / "other", tied=True)
    nudge(other, 7)
    with pytest.raises(EngineMismatch, match="A server must serve the policy of this run"):
        make_engine(generation(server, tmp_path), other)


def test_without_a_shared_directory_new_weights_are_refused_in_words(server: Server, policy: Policy) -> None:
    wanted = Generation(engine=VllmServer(base_url=server.url, seeded=False), temperature=0.7, max_tokens=24)
    with (
        closing(make_engine(wanted, policy)) as engine,
        pytest.raises(EngineFailed, match="shared_directory is not set"),
    ):
        engine.load_weights(policy.model.state_dict())
