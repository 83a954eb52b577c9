"""Matplotlib's list of fonts goes into sessions without fonts that they do not see."""

import json
from pathlib import Path

import pytest
from sandfleet_executor.effects.namespace import fonts


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fonts, "FOLDERS", fonts.FOLDERS[1:])
    (tmp_path / "matplotlib").mkdir()
    return tmp_path / "matplotlib"


def listed(*paths: str) -> str:
    return json.dumps({"_version": "3.11.0", "ttflist": [{"fname": path} for path in paths], "afmlist": []})


def test_the_newest_list_is_taken_without_the_fonts_of_a_home(cache: Path) -> None:
    (cache / "fontlist-v1.json").write_text(listed("fonts/ttf/old.ttf"))
    newest = cache / "fontlist-v2.json"
    newest.write_text(listed("fonts/ttf/cmr10.ttf", "/usr/share/fonts/a.ttf", "/home/ann/.fonts/secret.ttf"))
    made = (cache / "fontlist-v1.json").stat().st_mtime
    fonts.os.utime(newest, (made + 1, made + 1))
    found = fonts.fonts.__wrapped__()
    assert found.path == "/tmp/.matplotlib/fontlist-v2.json"
    assert json.loads(found.text) == json.loads(listed("fonts/ttf/cmr10.ttf", "/usr/share/fonts/a.ttf"))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"ttflist": 5, "afmlist": []}', '{"ttflist": [{}], "afmlist": []}']
)
def test_a_list_that_is_none_is_left_to_the_session(cache: Path, text: str) -> None:
    (cache / "fontlist-v1.json").write_text(text)
    assert fonts.fonts.__wrapped__() is None


def test_a_list_of_an_unlikely_size_is_not_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "MOST_BYTES", 10)
    (cache / "fontlist-v1.json").write_text(listed())
    assert fonts.fonts.__wrapped__() is None
