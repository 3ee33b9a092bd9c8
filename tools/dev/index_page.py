# SPDX-License-Identifier: Apache-2.0
"""The page of an index is README.md, whose links are relative; there they lead to the sources."""

import re
from typing import Any, Final

from setuptools.command.egg_info import egg_info

__all__ = ["WriteMetadata", "with_whole_links"]

_LINK: Final = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s]+)(?=\))")
_PICTURES: Final = (".png", ".svg")


def with_whole_links(text: str, source: str) -> str:
    """Return a page with each relative link made one to a file, or a folder, of the sources."""

    def whole(match: re.Match[str]) -> str:
        path = match[1]
        kind = "raw" if path.endswith(_PICTURES) else "tree" if path.endswith("/") else "blob"
        return f"{source}/{kind}/main/{path}"

    return _LINK.sub(whole, text)


class WriteMetadata(egg_info):
    """`egg_info`, which writes the metadata of sdists and wheels alike."""

    def finalize_options(self) -> None:
        """Mend the links."""
        super().finalize_options()
        metadata: Any = self.distribution.metadata  # setuptools adds to what distutils has
        source = metadata.project_urls["Source"]
        metadata.long_description = with_whole_links(metadata.long_description or "", source)
