"""Are the answers right? All test images through the server once, before anything is timed."""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.channels import OK, GrpcioChannel, code_name
from loadtest.errors import LoadError
from loadtest.payloads import UnusableReplyError, build, check
from loadtest.target import Target
from train.mnist import Mnist

_BATCH = 500  # divides the 10,000 test images
_DEADLINE_S = 60.0
TOLERANCE = 0.001
"""Share of the images by which server and training record may differ: rounding on other hardware may turn a near tie."""


@dataclass(frozen=True)
class Answers:
    """How many of the test images the server labelled right, and the version that did."""

    images: int
    right: int
    version: int

    @property
    def accuracy(self) -> float:
        """Right answers divided by images."""
        return self.right / self.images


def ask_all(target: Target, data: Mnist) -> Answers:
    """Scores every test image through the server, untimed. Raises LoadError if a request fails or a reply is unusable."""
    channel = GrpcioChannel(target.endpoint.address)
    try:
        images = right = 0
        version = target.version
        for payload in build(target, data, _BATCH, seed=0):
            reply = channel.predict(payload.request, _DEADLINE_S)
            if reply.code != OK:
                raise LoadError(f"{target.model} at {channel.target} answers {code_name(reply.code)} to real images: {reply.text}")
            correct, version = check(payload, reply.payload, target.output_name)
            images, right = images + len(payload.labels), right + correct
    except UnusableReplyError as problem:
        raise LoadError(f"{target.model} at {channel.target} gives no usable answers: {problem}") from problem
    finally:
        channel.close()
    return Answers(images, right, version)
