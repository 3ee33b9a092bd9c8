# SPDX-License-Identifier: Apache-2.0
"""The language check finds the wording it names, and its numbers can only fall."""

from pathlib import Path

import pytest

from shmnd_tools.dev import language


def patterns(text: str) -> list[str]:
    return [match.pattern for match in language.matches("page.md", text)]


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("Nobody polls it.", "nobody"),
        ("whoever comes", "nobody"),
        ("the peer for whom it waits", "nobody"),
        ("The peer is told.", "told"),
        ("# it is\n    # told of this", "told"),
        ("This is no fault.", "is no"),
        ("It goes on.", "goes on"),
        ('"""Give the size."""', "give"),
        ('"""Say why."""', "give"),
        ("what is left", "what is"),
        (" * what\n * is left", "what is"),
        ("It looks at the ring.", "look"),
        ("a liar", "liar"),
        ("who waits", "who"),
        ("the one beside it", "beside"),
    ],
)
def test_a_pattern_is_found(text: str, pattern: str) -> None:
    assert patterns(text)[:1] == [pattern]


@pytest.mark.parametrize(
    "text",
    [
        "There is no limit.",
        "there\nis no limit",
        "It is no longer posted.",
        '"""Return the size."""',
        "retold of_it",
        "lookat",
        "bench/report/comparison.py",
        "somebody_else",
    ],
)
def test_plain_wording_passes(text: str) -> None:
    assert patterns(text) == []


@pytest.mark.parametrize(
    "name",
    [
        "test_nobody_polls",
        "test_a_queue_of_nobodys",
        "test_a_message_for_somebody_else",
        "test_before_anybody",
        "test_everybody_connects",
        "test_whoever",
        "test_a_peer_to_whom_it_connects",
        "test_a_peer_is_told",
        "test_a_wait_goes_on_for_long",
        "test_sends_go_on",
        "test_what_is_no_address_is_refused",
    ],
)
def test_a_private_word_in_the_name_of_a_test_is_found(name: str) -> None:
    (match,) = language.matches("test_it.py", f"x = 1\n\n\nasync def {name}(x: int) -> None:\n")
    assert (match.line, match.text, match.pattern) == (4, name, language.TEST_NAME)
    assert language.TEST_NAME_ADVICE in str(match)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("test_it.py", "def test_a_batch_goes_one_way():"),
        ("test_it.py", "def test_an_untold_end():"),
        ("test_it.py", "def test_what_is_not_an_address():"),
        ("test_it.py", "def told(x): test_told(x)"),
        ("page.md", "def test_nobody_polls():"),
    ],
)
def test_other_names_pass(path: str, text: str) -> None:
    assert list(language.matches(path, text)) == []


def test_an_allowed_phrase_does_not_count() -> None:
    text = "The title is 'Nobody Knows'. Nobody knows."
    found = list(language.matches("page.md", text, ("'Nobody Knows'",)))
    assert [(match.line, match.text) for match in found] == [(1, "Nobody")]


def test_the_line_is_that_of_the_match() -> None:
    (match,) = language.matches("page.md", "one\ntwo\nwhat\nis\n")
    assert match.line == 3


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings = tmp_path / "language.toml"
    settings.write_text('# a comment\nallowed = []\n[folders]\n"docs" = 2\n"shmnd" = 1\n')
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("Nobody.\n")
    monkeypatch.setattr(language, "ROOT", tmp_path)
    monkeypatch.setattr(language, "SETTINGS", settings)
    return tmp_path


def test_numbers_fall_and_do_not_rise(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert language.main(["--update"]) == 0
    assert (small / "language.toml").read_text() == "# a comment\nallowed = []\n[folders]\n" + (
        '"docs" = 1\n'
    )
    (small / "docs" / "page.md").write_text("Nobody, and\nsomebody.\n")
    assert language.main(["--update"]) == 1
    assert language.settings() == ((), {"docs": 1})
    assert "docs/page.md:2: 'somebody' (nobody:" in capsys.readouterr().out


def test_a_folder_without_a_number_must_have_none(small: Path) -> None:
    (small / "bench").mkdir()
    (small / "bench" / "new.py").write_text("# Nobody.\n")
    assert language.main([]) == 1


def test_the_sources_of_the_project_are_checked() -> None:
    checked = {str(path.relative_to(language.ROOT)) for path in language.sources(language.ROOT)}
    assert {"README.md", "shmnd/adapter.py", "docs/index.md"} <= checked
    assert not language.SKIPPED & checked
    assert all((language.ROOT / name).exists() for name in language.SKIPPED)
