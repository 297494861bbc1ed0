from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from loadtest import messages, payloads
from loadtest.errors import LoadError
from loadtest.target import Target
from serving.endpoint import Endpoint
from train.mnist import Mnist, scale

TARGET = Target(Endpoint("127.0.0.1:1"), "cnn2", 1, "serving_default", "images", 784, "classes")


def _images(payload: payloads.Payload) -> np.ndarray:
    tensor = messages.PredictRequest.FromString(payload.request).inputs["images"]
    assert [dim.size for dim in tensor.tensor_shape.dim] == [len(payload.labels), 784]
    return np.frombuffer(tensor.tensor_content, "<f4").reshape(-1, 784)


def test_requests_hold_each_test_image_once_and_no_training_image(data: Mnist) -> None:
    sent = Counter(row.tobytes() for payload in payloads.build(TARGET, data, 8, seed=3) for row in _images(payload))
    assert sent == Counter(row.tobytes() for row in scale(data.test_images))
    assert not sent.keys() & {row.tobytes() for row in scale(data.train_images[:5000])}


def test_a_request_carries_the_labels_of_its_own_images(data: Mnist) -> None:
    labels = {row.tobytes(): label for row, label in zip(scale(data.test_images), data.test_labels, strict=True)}
    for payload in payloads.build(TARGET, data, 32, seed=0)[:50]:
        assert [labels[row.tobytes()] for row in _images(payload)] == payload.labels.tolist()


def test_the_order_comes_from_the_seed(data: Mnist) -> None:
    first, again, other = (payloads.build(TARGET, data, 128, seed)[0].request for seed in (1, 1, 2))
    assert first == again != other


def test_requests_have_the_asked_size_and_differ_from_each_other(data: Mnist) -> None:
    for size, count in ((1, 10_000), (128, 78), (2048, 4)):
        built = payloads.build(TARGET, data, size, seed=0)
        assert len(built) == count
        assert {len(payload.labels) for payload in built} == {size}
        assert len({payload.request for payload in built}) == count


@pytest.mark.parametrize("size", [0, -1, 10_001])
def test_a_batch_that_the_test_images_can_not_fill_is_refused(data: Mnist, size: int) -> None:
    with pytest.raises(LoadError, match="give a number from 1 to 10,000"):
        payloads.build(TARGET, data, size, seed=0)


def test_a_model_of_other_images_is_refused(data: Mnist) -> None:
    with pytest.raises(LoadError, match="takes 100 values an image, MNIST has 784"):
        payloads.build(Target(Endpoint("h:1"), "cnn2", 1, "serving_default", "images", 100, "classes"), data, 1, seed=0)


def _reply(dtype: int, shape: list[int], name: str = "classes", version: int = 5, **fields: object) -> bytes:
    response = messages.PredictResponse()
    response.model_spec.version.value = version
    tensor = response.outputs[name]
    tensor.dtype = dtype
    for size in shape:
        tensor.tensor_shape.dim.add().size = size
    for field, value in fields.items():
        if isinstance(value, bytes):
            setattr(tensor, field, value)
        else:
            getattr(tensor, field).extend(value)
    return response.SerializeToString()


def _payload(labels: list[int]) -> payloads.Payload:
    return payloads.Payload(b"", np.array(labels, np.uint8))


CLASSES = _reply(9, [3], int64_val=[4, 5, 6])
RAW_CLASSES = _reply(9, [3], tensor_content=np.array([4, 5, 6], "<i8").tobytes())
LOGITS = np.zeros((3, 10), "<f4")
LOGITS[[0, 1, 2], [4, 5, 6]] = 1.5


@pytest.mark.parametrize(
    ("reply", "output"),
    [
        (CLASSES, "classes"),
        (RAW_CLASSES, "classes"),
        (_reply(1, [3, 10], "logits", float_val=LOGITS.ravel().tolist()), "logits"),
        (_reply(1, [3, 10], "logits", tensor_content=LOGITS.tobytes()), "logits"),
    ],
    ids=["labels typed", "labels raw", "logits typed", "logits raw"],
)
def test_right_labels_are_counted_in_either_encoding_and_the_version_is_read(reply: bytes, output: str) -> None:
    payload = _payload([4, 0, 6])
    assert payloads.check(payload, reply, output) == (2, 5)
    assert payloads.check(payload, reply, output) == (2, 5)


def test_another_reply_to_the_same_request_is_decoded_anew() -> None:
    payload = _payload([4, 5, 6])
    assert payloads.check(payload, CLASSES, "classes") == (3, 5)
    assert payloads.check(payload, _reply(9, [3], version=6, int64_val=[0, 0, 6]), "classes") == (1, 6)
    assert payloads.check(payload, CLASSES, "classes") == (3, 5)


BAD_LOGITS = LOGITS.copy()
BAD_LOGITS[1, 1] = np.nan


@pytest.mark.parametrize(
    ("reply", "output", "says"),
    [
        (b"\xff\xff\xff", "classes", "not a PredictResponse"),
        (CLASSES[: len(CLASSES) // 2], "classes", "not a PredictResponse"),
        (b"", "classes", "no output classes"),
        (b'{"error": "no"}', "classes", "not a PredictResponse|no output"),
        (CLASSES, "logits", "no output logits"),
        (_reply(9, [2], int64_val=[4, 5]), "classes", "shape"),
        (_reply(9, [3], int64_val=[4, 5]), "classes", "fewer or more values"),
        (_reply(9, [3]), "classes", "fewer or more values"),
        (_reply(9, [3], tensor_content=b"123"), "classes", "another length"),
        (_reply(3, [3], int_val=[4, 5, 6]), "classes", "dtype 3"),
        (_reply(1, [3, 9], "logits", float_val=[0.0] * 27), "logits", "shape"),
        (_reply(1, [3, 10], "logits", tensor_content=BAD_LOGITS.tobytes()), "logits", "not finite"),
    ],
)
def test_a_reply_that_is_no_answer_is_unusable(reply: bytes, output: str, says: str) -> None:
    with pytest.raises(payloads.UnusableReplyError, match=says):
        payloads.check(_payload([4, 5, 6]), reply, output)
