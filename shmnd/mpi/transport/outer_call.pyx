# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The call of the program in which others are made: `Split` is a gather, `File.Open` several.

What a rank waits for, and the errors of calls that are made within, are those of the call that the
program made. It opens a block (`with OuterCall(...)`) for the contexts of the communicators that it
uses. Blocks belong to a thread: another one makes calls of its own meanwhile. Within others, the
outermost counts that has the context: a handler of the program that is called within a block, of
errors or of signals, may use other communicators. A call that is one other alone, as `Win.Fence` is
a barrier, lends that its name and needs no block.
"""

from cpython.pythread cimport PyThread_get_thread_ident

cdef int open_calls = 0
cdef dict _innermost = {}   # by threads


cdef class OuterCall:
    """A call of the program, open for as long as the `with` block."""

    def __init__(self, str name, object of, uint32_t context, uint32_t communicators=1):
        """Take the name of the call, what it is a call of (with a `title`, or as a text), and the
        first context of a communicator, or of several one after the other."""
        self.name = name
        self.of = of
        self.first = context // CONTEXTS
        self.end = self.first + communicators

    def __enter__(self):
        global open_calls
        cdef object thread = PyThread_get_thread_ident()
        self.above = <OuterCall>_innermost.get(thread)
        _innermost[thread] = self
        open_calls += 1
        return self

    def __exit__(self, kind, error, trace):
        global open_calls
        cdef object thread = PyThread_get_thread_ident()
        open_calls -= 1
        if self.above is None:
            del _innermost[thread]
        else:
            _innermost[thread] = self.above

    cdef bint has(self, uint32_t context) noexcept:
        cdef uint32_t number = context // CONTEXTS
        return self.first <= number < self.end or (
            self.others is not None and number in self.others
        )

    def cover(self, uint32_t context) -> None:
        """Take in another communicator, here and in the calls around that have the first one."""
        cdef OuterCall each = self
        while each is not None:
            if each is self or each.has(self.first * CONTEXTS):
                each.others = each.others or set()
                each.others.add(context // CONTEXTS)
            each = each.above

    cdef str title(self):
        """Return the name of the object that it is a call of."""
        return self.of if isinstance(self.of, str) else self.of.title()


cdef OuterCall find_outer(uint32_t context):
    """Return the outermost block of this thread that has a context, or None."""
    cdef OuterCall each = <OuterCall>_innermost.get(PyThread_get_thread_ident())
    cdef OuterCall found = None
    while each is not None:
        if each.has(context):
            found = each
        each = each.above
    return found


cpdef str full_name(str call):
    """Return the name of a call with its class: calls of communicators are known without it."""
    return call if "." in call else "Comm." + call


cpdef str name_of(uint32_t context, str call):
    """Return the full name of a call on a context, as the program knows it."""
    cdef OuterCall outer = outer_of(context)
    return full_name(call if outer is None else outer.name)


cpdef str place_of(uint32_t context, str call, str title):
    """Return that name and what it is a call of, for a message."""
    cdef OuterCall outer = outer_of(context)
    if outer is not None:
        call, title = outer.name, outer.title()
    return f"{full_name(call)} of {title}"
