# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Arrays that do not speak the buffer protocol: DLPack, and CUDA's array interface.

Memory is taken where it lies, and only if this process can read it: memory of a device that the
processor cannot reach is refused with a BufferError. Copy such arrays to the host first.
"""

import sys
import warnings
from operator import index

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from "buffers/array_interfaces.h":
    enum:
        DL_CPU
        DL_CUDA_HOST
        DL_ROCM_HOST
        DL_INT
        DL_UINT
        DL_FLOAT
        DL_COMPLEX
        DL_BOOL
        DL_READ_ONLY
    ctypedef struct dl_device:
        int32_t type
        int32_t id
    ctypedef struct dl_dtype:
        int code
        int bits
        int lanes
    ctypedef struct dl_tensor:
        void *data
        int32_t ndim
        dl_dtype dtype
        int64_t *shape
        int64_t *strides
        uint64_t byte_offset
    ctypedef struct dl_version:
        int major
        int minor
    ctypedef struct dl_versioned:
        dl_version version
        uint64_t flags
        dl_tensor tensor
    int foreign_in_a_row(int32_t ndim, const int64_t *shape, const int64_t *strides, int fortran)
    int foreign_readable(const char *data, size_t nbytes)

cdef int _MOST_DIMS = 64
cdef dict _LETTERS = {
    "i": {1: "b", 2: "h", 4: "i", 8: "l"},
    "u": {1: "B", 2: "H", 4: "I", 8: "L"},
    "f": {2: "e", 4: "f", 8: "d", 16: "g"},
    "c": {8: "Zf", 16: "Zd", 32: "Zg"},
    "b": {1: "?"},
}
cdef dict _DL_KINDS = {DL_INT: "i", DL_UINT: "u", DL_FLOAT: "f", DL_COMPLEX: "c", DL_BOOL: "b"}


cdef int _set_format(Foreign *found, str kind, Py_ssize_t itemsize) except -1:
    """Set the format of an item, or bytes where no type of C matches."""
    letters = _LETTERS.get(kind, {}).get(itemsize, "B").encode()
    cdef int place
    for place in range(4):
        found.format[place] = letters[place] if place < len(letters) else 0
    return 0


cdef int _reachable(object obj, Foreign *found) except -1:
    """Raise BufferError where this process cannot read the memory."""
    if not foreign_readable(found.data, found.nbytes):
        raise BufferError(
            f"the memory of this {type(obj).__name__} lies on a device and cannot be reached by "
            "the processor: copy the array to the host and send the copy"
        )
    return 0


cdef object _dlpack(object obj, Foreign *found):
    """Describe an array by its DLPack capsule, and return what keeps the memory."""
    device_type, device_id = obj.__dlpack_device__()
    cdef int kind = device_type
    index(device_id)
    stream = None if kind == DL_CPU else -1
    try:
        capsule = obj.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:
        capsule = obj.__dlpack__(stream=stream)
    cdef dl_versioned *managed = NULL
    cdef dl_tensor *tensor
    found.readonly = False
    if PyCapsule_IsValid(capsule, "dltensor_versioned"):
        managed = <dl_versioned *> PyCapsule_GetPointer(capsule, "dltensor_versioned")
        if managed.version.major != 1:
            raise BufferError(
                f"DLPack version {managed.version.major}.{managed.version.minor} of this "
                f"{type(obj).__name__}; known are 0 and 1"
            )
        found.readonly = managed.flags & DL_READ_ONLY != 0
        tensor = &managed.tensor
    elif PyCapsule_IsValid(capsule, "dltensor"):
        tensor = <dl_tensor *> PyCapsule_GetPointer(capsule, "dltensor")
    else:
        raise BufferError(
            f"__dlpack__ of this {type(obj).__name__} did not return a capsule that holds a tensor"
        )
    _tensor(obj, tensor, found)
    found.device = kind not in (DL_CPU, DL_CUDA_HOST, DL_ROCM_HOST)
    if found.device:
        _reachable(obj, found)
    return capsule


cdef int _tensor(object obj, dl_tensor *tensor, Foreign *found) except -1:
    """Describe a tensor of DLPack, all of whose fields another library has written."""
    cdef int32_t dim
    cdef int64_t items = 1
    if not 0 <= tensor.ndim <= _MOST_DIMS or (tensor.ndim > 0 and tensor.shape == NULL):
        raise BufferError(
            f"the tensor of this {type(obj).__name__} has {tensor.ndim} dimensions or no shape"
        )
    for dim in range(tensor.ndim):
        if tensor.shape[dim] < 0:
            raise BufferError(f"dimension {dim} of the tensor has {tensor.shape[dim]} items")
        items *= tensor.shape[dim]
    if tensor.ndim and tensor.strides != NULL and items and not (
        foreign_in_a_row(tensor.ndim, tensor.shape, tensor.strides, 0)
        or foreign_in_a_row(tensor.ndim, tensor.shape, tensor.strides, 1)
    ):
        raise BufferError(f"the tensor of this {type(obj).__name__} is not contiguous")
    if tensor.data == NULL and items:
        raise BufferError(f"the tensor of this {type(obj).__name__} has {items} items at address 0")
    found.itemsize = (tensor.dtype.bits * tensor.dtype.lanes + 7) // 8
    found.nbytes = items * found.itemsize
    found.data = <char *> tensor.data + tensor.byte_offset if tensor.data != NULL else NULL
    kind = _DL_KINDS.get(tensor.dtype.code, "") if tensor.dtype.lanes == 1 else ""
    if tensor.dtype.lanes == 2 and tensor.dtype.code == DL_FLOAT:
        kind = "c"  # a complex number as two lanes, for which DLPack's `bits` are too few
    return _set_format(found, kind, found.itemsize)


cdef object _cuda(object obj, object interface, Foreign *found):
    """Describe an array by CUDA's array interface."""
    if not isinstance(interface, dict):
        raise TypeError(f"__cuda_array_interface__ of this {type(obj).__name__} is not a dict")
    address, readonly = interface["data"]
    typestr = interface["typestr"]
    shape = interface["shape"]
    strides = interface.get("strides")
    descr = interface.get("descr")
    if not isinstance(typestr, str):
        raise TypeError(f"typestr {typestr!r} is not a str")
    for name, value in (("shape", shape), ("strides", strides)):
        if not isinstance(value, (tuple, list)) and (name == "shape" or value is not None):
            raise TypeError(f"{name} {value!r} is not a tuple")
    if interface.get("mask") is not None:
        raise BufferError("a mask of an array cannot be sent")
    if typestr[:1] not in ("|", "=", "<" if sys.byteorder == "little" else ">"):
        raise BufferError(f"typestr {typestr!r}: the byte order is not that of this machine")
    if descr is not None:
        if not isinstance(descr, (list, tuple)):
            raise TypeError(f"descr {descr!r} is not a list")
        if len(descr) != 1 or descr[0][1] != typestr:
            warnings.warn("the array has fields; they are sent as bytes", RuntimeWarning, 5)
    cdef Py_ssize_t itemsize = int(typestr[2:])
    cdef Py_ssize_t items = 1
    for length in shape:
        if length < 0:
            raise BufferError(f"shape {shape}: a dimension is negative")
        items *= <Py_ssize_t> length
    if strides is not None and items and not (
        _row(shape, strides, itemsize, True) or _row(shape, strides, itemsize, False)
    ):
        raise BufferError(f"shape {shape} and strides {strides}: the array is not contiguous")
    found.data = <char *> <size_t> address
    found.itemsize = itemsize
    found.nbytes = items * itemsize
    found.readonly = bool(readonly)
    found.device = True
    _set_format(found, typestr[1], itemsize)
    _reachable(obj, found)
    return None


cdef bint _row(object shape, object strides, Py_ssize_t expected, bint fortran):
    """Return whether each dimension follows the next at once."""
    pairs = list(zip(shape, strides, strict=True))
    for length, stride in pairs if fortran else reversed(pairs):
        if length != 1 and stride != expected:
            return False
        expected *= <Py_ssize_t> length
    return True


cdef object describe(object obj, Foreign *found):
    """Describe the memory of an array, and return the object that keeps it.

    Raise TypeError for objects that are not arrays of any known kind, BufferError for memory that
    cannot be sent.
    """
    if hasattr(obj, "__dlpack_device__") and hasattr(obj, "__dlpack__"):
        return _dlpack(obj, found)
    try:
        interface = obj.__cuda_array_interface__
    except AttributeError:
        raise TypeError(
            f"expected an object with memory (buffer protocol, DLPack or CUDA's array interface), "
            f"not {type(obj).__name__}"
        ) from None
    return _cuda(obj, interface, found)
