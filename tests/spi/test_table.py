# SPDX-License-Identifier: Apache-2.0
"""The page of statuses says what the tests say."""

import pytest

from spi.table import PAGE, VERSIONS, Version, page


def test_the_page_matches_the_tests() -> None:
    assert PAGE.read_text() == page(VERSIONS), "out of date: cd tests && python -m spi.table"


def test_a_page_with_an_empty_cell_is_refused() -> None:
    version = Version("None", "spi", {"listener": {"bind": "TIMEOUT"}}, {}, {})
    with pytest.raises(ValueError, match="TIMEOUT"):
        page([version])
