# SPDX-License-Identifier: Apache-2.0
"""What a program sets before it imports MPI: `mpi4py.rc`."""

from typing import Any, Final


class Rc:
    """Settings for the start and end of MPI; attributes, and keywords of a call.

    `initialize` and `finalize` say whether importing MPI initializes and leaving Python finalizes,
    `threads` and `thread_level` which thread support is asked for, `errors` what an error does
    (`exception`, `default`, `abort`, `fatal`), the others how objects are received and reduced.
    """

    initialize: bool = True
    threads: bool = True
    thread_level: str = "multiple"
    finalize: bool | None = None
    fast_reduce: bool = True
    recv_mprobe: bool = True
    irecv_bufsz: int = 32768
    errors: str = "exception"

    def __init__(self, **kwargs: Any) -> None:
        """Set what the keywords name."""
        self(**kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(type(self), name) or name.startswith("_"):
            raise TypeError(f"mpi4py.rc has no setting {name!r}; known are {', '.join(NAMES)}")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"mpi4py.rc has no setting {name!r}; known are {', '.join(NAMES)}")

    def __call__(self, **kwargs: Any) -> None:
        """Set what the keywords name."""
        for name in kwargs:
            if name not in NAMES:
                raise TypeError(f"mpi4py.rc has no setting {name!r}; known are {', '.join(NAMES)}")
        for name, value in kwargs.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return "mpi4py.rc"


NAMES: Final = tuple(Rc.__annotations__)
rc: Final = Rc()
