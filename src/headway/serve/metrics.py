"""What the server counts, for Prometheus; what vLLM counts too has its name here as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily

from headway.generate.prefixes import Prefixes

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        named: dict[str, Any] = {"labelnames": ("model_name",), "registry": self.registry}
        self.read = Counter("vllm:prompt_tokens", "Tokens of prompts", **named)
        self.written = Counter("vllm:generation_tokens", "Tokens that were written", **named)
        self.running = Gauge("vllm:num_requests_running", "Requests that are written", **named)
        self.waiting = Gauge("vllm:num_requests_waiting", "Requests that wait for a slot", **named)
        timed = named | {"buckets": SECONDS}
        self.first = Histogram("vllm:time_to_first_token_seconds", "From a request to its first token", **timed)
        self.between = Histogram("vllm:inter_token_latency_seconds", "From a token to the next one", **timed)
        self.all = Histogram("vllm:e2e_request_latency_seconds", "From a request to its last token", **timed)
        reasons: dict[str, Any] = {"labelnames": ("model_name", "finished_reason"), "registry": self.registry}
        self.done = Counter("vllm:request_success", "Rows that were written to their end", **reasons)
        self.prefixes: dict[str, Prefixes] = {}
        self.registry.register(self)

    def watch(self, name: str, running: Callable[[], int], waiting: Callable[[], int]) -> None:
        """Gauges that are asked when somebody looks."""
        self.running.labels(name).set_function(running)
        self.waiting.labels(name).set_function(waiting)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What the models' threads count by themselves."""
        asked = CounterMetricFamily("vllm:prefix_cache_queries", "Tokens of prompts", labels=["model_name"])
        shared = CounterMetricFamily("vllm:prefix_cache_hits", "Those that were not read again", labels=["model_name"])
        for name, own in self.prefixes.items():
            asked.add_metric([name], own.asked)
            shared.add_metric([name], own.shared)
        yield from (asked, shared)

    def text(self) -> bytes:
        return generate_latest(self.registry)
