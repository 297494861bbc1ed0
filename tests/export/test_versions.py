from __future__ import annotations

import errno
import re
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from export.errors import ExportError
from export.versions import publish, versions


def writer(text: str = "model") -> Callable[[Path], None]:
    return lambda folder: (folder / "content").write_text(text) and None


def test_versions_count_from_one_and_an_earlier_one_is_not_touched(tmp_path: Path) -> None:
    made = [publish(tmp_path / "cnn2", writer(text)) for text in ("a", "b", "c")]
    assert made == [tmp_path / "cnn2" / name for name in ("1", "2", "3")]
    assert [(version / "content").read_text() for version in made] == ["a", "b", "c"]
    assert versions(tmp_path / "cnn2") == [1, 2, 3]


def test_a_number_below_the_highest_is_not_taken_again(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    assert publish(tmp_path, writer()).name == "8"


@pytest.mark.parametrize("name", ["v9", "9.tmp", ".9", "-9", "+9", " 9", "9 ", "tmp-9", "0.9", "٩", "²", "9a", ".export-9", "latest"])
def test_names_that_are_not_plain_digits_are_no_versions(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    assert versions(tmp_path) == []
    assert publish(tmp_path, writer()).name == "1"
    assert (tmp_path / name).is_dir()


def test_a_number_with_leading_zeros_is_that_number(tmp_path: Path) -> None:
    (tmp_path / "007").mkdir()
    assert versions(tmp_path) == [7]
    assert publish(tmp_path, writer()).name == "8"


def test_a_file_with_the_next_number_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("a file")
    assert publish(tmp_path, writer()).name == "2"
    assert (tmp_path / "1").read_text() == "a file"


def test_a_folder_that_is_not_there_has_no_versions(tmp_path: Path) -> None:
    assert versions(tmp_path / "cnn2") == []


names = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]) | st.sampled_from("0123456789"), min_size=1, max_size=9)


@settings(deadline=None)
@given(names=st.sets(names.filter(lambda name: name not in (".", "..")), max_size=8))
def test_versions_are_the_plain_numbers_upwards_whatever_else_lies_there(names: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            (Path(folder) / name).mkdir()
        numbers = sorted(int(name) for name in names if re.fullmatch("[0-9]+", name))
        assert versions(Path(folder)) == numbers
        made = publish(Path(folder), writer())
        assert int(made.name) > max(numbers, default=0)


class Stopped(BaseException):
    pass


@pytest.mark.parametrize("problem", [ExportError("refused"), ValueError("wrong"), KeyboardInterrupt(), Stopped()])
def test_a_writer_that_fails_leaves_nothing_behind(problem: BaseException, tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise problem

    publish(tmp_path / "cnn2", writer())
    with pytest.raises(type(problem)):
        publish(tmp_path / "cnn2", fail)
    assert [child.name for child in (tmp_path / "cnn2").iterdir()] == ["1"]


def test_a_full_disk_is_one_line_and_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ExportError, match="can't write a version of cnn2: No space left on device"):
        publish(tmp_path / "cnn2", fail)
    assert list((tmp_path / "cnn2").iterdir()) == []


def test_a_folder_that_can_not_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file where the folder should be")
    with pytest.raises(ExportError, match=r"can't write to .*/models/cnn2: .*; choose --artifacts"):
        publish(tmp_path / "models" / "cnn2", writer())


def test_a_number_is_never_seen_before_its_content_is_whole(tmp_path: Path) -> None:
    seen: list[list[int]] = []

    def slow(folder: Path) -> None:
        for part in range(3):
            (folder / str(part)).write_text("part")
            seen.append(versions(tmp_path))

    version = publish(tmp_path, slow)
    assert seen == [[], [], []]
    assert [child.name for child in tmp_path.iterdir()] == ["1"]
    assert len(list(version.iterdir())) == 3


def test_many_at_once_get_a_number_each(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def write(text: str) -> Path:
        def meet(folder: Path) -> None:
            (folder / "content").write_text(text)
            together.wait(10)

        return publish(tmp_path, meet)

    for turn in range(10):
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(write, "abcdefgh"))
        assert {int(version.name) for version in made} == set(range(turn * 8 + 1, turn * 8 + 9))
        assert [(version / "content").read_text() for version in made] == list("abcdefgh")


def test_a_version_can_be_read_by_a_server_of_another_user(tmp_path: Path) -> None:
    version = publish(tmp_path / "cnn2", writer())
    assert version.stat().st_mode & 0o055 == 0o055
    assert (version / "content").stat().st_mode & 0o044 == 0o044
