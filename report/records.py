"""A run as frozen dataclasses: the fields and units of docs/run-format.md, and nothing else.

A field without a default must be in the file. None is a value that wasn't measured or that the samples don't support.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Latency:
    """Times of the successes of one cell in milliseconds; None where too few samples support the value."""

    mean: float | None = None
    min: float | None = None
    max: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    p999: float | None = None
    ci95: dict[str, tuple[float, ...] | None] = field(default_factory=dict)

    def interval(self, name: str) -> tuple[float, float] | None:
        """The 95 % confidence limits of the percentile `name` in milliseconds, or None."""
        limits = self.ci95.get(name)
        return (limits[0], limits[1]) if limits and len(limits) == 2 else None


@dataclass(frozen=True)
class Window:
    """The measured part of a cell on one worker's clock, in nanoseconds."""

    worker: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class ScheduleLag:
    """How late requests were sent in open loop, in milliseconds."""

    p99: float | None = None


@dataclass(frozen=True)
class ServerTimes:
    """What the server says of a cell: means in milliseconds (`batch_mean` in images) and where they come from."""

    request_mean: float | None = None
    runtime_mean: float | None = None
    queue_mean: float | None = None
    batch_mean: float | None = None
    count: int | None = None
    evidence: object = None


@dataclass(frozen=True)
class Cell:
    """One model at one batch size and load level: counts, rates and times of its window."""

    id: int
    model: str
    batch_size: int
    mode: str
    sent: int
    ok: int
    failed: int
    abandoned: int
    valid: bool
    model_version: int | str | None = None
    concurrency: int | None = None
    offered_per_s: float | None = None
    target: object = None
    warmup_s: float | None = None
    window_s: float | None = None
    request_bytes: float | None = None
    errors: dict[str, int] = field(default_factory=dict)
    requests_per_s: float | None = None
    images_per_s: float | None = None
    response_ms: Latency = field(default_factory=Latency)
    service_ms: Latency = field(default_factory=Latency)
    server_ms: ServerTimes | None = None
    accuracy: float | None = None
    schedule_lag_ms: ScheduleLag | None = None
    client_cpu: float | None = None
    load_on_client: float | None = None
    windows: tuple[Window, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """A GPU of a host."""

    name: str | None = None
    driver: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Host:
    """A machine; `cpus` is how many CPUs are usable."""

    cpu_model: str | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    kernel: str | None = None
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True)
class Server:
    """What answered the requests; `cpus` are the CPU numbers that it may run on."""

    engine: str = "unknown"
    version: str | None = None
    image: str | None = None
    image_digest: str | None = None
    device: str | None = None
    device_evidence: object = None
    flags: object = None
    batching: object = None
    threads: object = None
    address: str | None = None
    cpus: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Floor:
    """What the load generator itself costs, measured against a peer that does nothing."""

    p50_us: float | None = None
    p99_us: float | None = None
    max_requests_per_s: float | None = None
    measured_at: str | None = None


@dataclass(frozen=True)
class Client:
    """The load generator; `cpus` are the CPU numbers that it may run on."""

    channel: str | None = None
    processes: int | None = None
    cpus: tuple[int, ...] | None = None
    location: str | None = None
    deadline_s: float | None = None
    think_time_s: float | None = None
    seed: int | None = None
    floor: Floor | None = None


@dataclass(frozen=True)
class CurvePoint:
    """One point of a training curve, on a training batch."""

    step: int
    loss: float | None = None
    accuracy: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Recipe:
    """How a model was trained, as far as the report says it."""

    steps: int | None = None
    batch_size: int | None = None


@dataclass(frozen=True)
class Training:
    """A training record, as far as the report says it; `train_seconds` is the loop over the steps."""

    model: str
    conv_layers: int | None = None
    parameters: int | None = None
    flops_per_image: int | None = None
    recipe: Recipe = field(default_factory=Recipe)
    device: str | None = None
    host: Host = field(default_factory=Host)
    train_seconds: float | None = None
    total_seconds: float | None = None
    images_per_s: float | None = None
    curve: tuple[CurvePoint, ...] = ()
    test_accuracy: float | None = None
    weights_sha256: str | None = None


@dataclass(frozen=True)
class Run:
    """A whole run; `raw` is `run.json` as read, `folder` where it lies."""

    id: str
    complete: bool
    label: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    notes: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    host: Host = field(default_factory=Host)
    software: dict[str, object] = field(default_factory=dict)
    server: Server = field(default_factory=Server)
    training: dict[str, Training] = field(default_factory=dict)
    client: Client = field(default_factory=Client)
    cells: tuple[Cell, ...] = ()
    folder: Path = Path()
    raw: dict[str, object] = field(default_factory=dict)
