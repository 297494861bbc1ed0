"""The endpoint: where a server answers, what it is, and what it says of itself.

The one value that load reads from serving. The engine is named by the server itself or by whoever started it, never guessed:
the embedded server sends its description as response metadata of GetModelStatus, TensorFlow Serving sends nothing.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, Literal

DESCRIPTION_KEY = "timetoscore-endpoint-bin"
"""The response metadata key under which the embedded server describes itself, as JSON."""

Engine = Literal["embedded", "tensorflow-serving", "unknown"]


@dataclass(frozen=True)
class Endpoint:
    """A server's gRPC address (host:port) and its facts, as `server` in run.json holds them; None where not known."""

    address: str
    engine: Engine = "unknown"
    version: str | None = None
    image: str | None = None
    image_digest: str | None = None
    device: Literal["cpu", "gpu"] | None = None
    device_evidence: str | None = None
    flags: list[str] | None = None
    batching: dict[str, Any] | None = None
    threads: dict[str, int] | None = None
    cpus: list[int] | None = None
    rest_address: str | None = None

    def to_json(self) -> str:
        """The endpoint as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes, **changes: Any) -> Endpoint:
        """The endpoint that `to_json` wrote, with `changes`; fields of a newer version are left out. Raises ValueError."""
        facts = json.loads(text)
        if not isinstance(facts, dict) or "address" not in facts:
            raise ValueError("not an endpoint")
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{**{name: value for name, value in facts.items() if name in known}, **changes})
