# SPDX-License-Identifier: Apache-2.0
"""The namespace of MPI, as `mpi4py.MPI` has it.

Importing it initializes MPI, unless `mpi4py.rc` says otherwise, and leaves it when Python ends.
"""

# ruff: isort: skip_file
# fmt: off
from typing import TYPE_CHECKING as _TYPE_CHECKING

from shmnd.mpi.buffers import shared_arrays as _shared_arrays
from shmnd.mpi.collectives import pickled as _coll_objects
from shmnd.mpi.point_to_point.buffering import (
    Attach_buffer as Attach_buffer, Detach_buffer as Detach_buffer, Flush_buffer as Flush_buffer,
    Iflush_buffer as Iflush_buffer
)
from shmnd.mpi.transport import leaving as _leaving
from shmnd.mpi.environment import at_finalize as _at_finalize, start as _start
from shmnd.mpi.rc import rc as _rc
from shmnd.mpi.rc_settings import settings_of as _settings_of
from shmnd.mpi.signatures import embed as _embed
from shmnd.mpi.communicators.grids import Compute_dims as Compute_dims
from shmnd.mpi.constants import (
    UNDEFINED as UNDEFINED, ANY_SOURCE as ANY_SOURCE, ANY_TAG as ANY_TAG, PROC_NULL as PROC_NULL,
    ROOT as ROOT, KEYVAL_INVALID as KEYVAL_INVALID, TAG_UB as TAG_UB, IO as IO,
    WTIME_IS_GLOBAL as WTIME_IS_GLOBAL, APPNUM as APPNUM, LASTUSEDCODE as LASTUSEDCODE,
    UNIVERSE_SIZE as UNIVERSE_SIZE, WIN_BASE as WIN_BASE, WIN_SIZE as WIN_SIZE,
    WIN_DISP_UNIT as WIN_DISP_UNIT, WIN_CREATE_FLAVOR as WIN_CREATE_FLAVOR,
    WIN_FLAVOR as WIN_FLAVOR, WIN_MODEL as WIN_MODEL, SUCCESS as SUCCESS,
    ERR_BUFFER as ERR_BUFFER, ERR_COUNT as ERR_COUNT, ERR_TYPE as ERR_TYPE, ERR_TAG as ERR_TAG,
    ERR_COMM as ERR_COMM, ERR_RANK as ERR_RANK, ERR_REQUEST as ERR_REQUEST, ERR_ROOT as ERR_ROOT,
    ERR_GROUP as ERR_GROUP, ERR_OP as ERR_OP, ERR_TOPOLOGY as ERR_TOPOLOGY, ERR_DIMS as ERR_DIMS,
    ERR_ARG as ERR_ARG, ERR_UNKNOWN as ERR_UNKNOWN, ERR_TRUNCATE as ERR_TRUNCATE,
    ERR_OTHER as ERR_OTHER, ERR_INTERN as ERR_INTERN, ERR_IN_STATUS as ERR_IN_STATUS,
    ERR_PENDING as ERR_PENDING, ERR_ACCESS as ERR_ACCESS, ERR_AMODE as ERR_AMODE,
    ERR_ASSERT as ERR_ASSERT, ERR_BAD_FILE as ERR_BAD_FILE, ERR_BASE as ERR_BASE,
    ERR_CONVERSION as ERR_CONVERSION, ERR_DISP as ERR_DISP, ERR_DUP_DATAREP as ERR_DUP_DATAREP,
    ERR_FILE_EXISTS as ERR_FILE_EXISTS, ERR_FILE_IN_USE as ERR_FILE_IN_USE, ERR_FILE as ERR_FILE,
    ERR_INFO_KEY as ERR_INFO_KEY, ERR_INFO_NOKEY as ERR_INFO_NOKEY,
    ERR_INFO_VALUE as ERR_INFO_VALUE, ERR_INFO as ERR_INFO, ERR_IO as ERR_IO,
    ERR_KEYVAL as ERR_KEYVAL, ERR_LOCKTYPE as ERR_LOCKTYPE, ERR_NAME as ERR_NAME,
    ERR_NO_MEM as ERR_NO_MEM, ERR_NOT_SAME as ERR_NOT_SAME, ERR_NO_SPACE as ERR_NO_SPACE,
    ERR_NO_SUCH_FILE as ERR_NO_SUCH_FILE, ERR_PORT as ERR_PORT, ERR_QUOTA as ERR_QUOTA,
    ERR_READ_ONLY as ERR_READ_ONLY, ERR_RMA_CONFLICT as ERR_RMA_CONFLICT,
    ERR_RMA_SYNC as ERR_RMA_SYNC, ERR_SERVICE as ERR_SERVICE, ERR_SIZE as ERR_SIZE,
    ERR_SPAWN as ERR_SPAWN, ERR_UNSUPPORTED_DATAREP as ERR_UNSUPPORTED_DATAREP,
    ERR_UNSUPPORTED_OPERATION as ERR_UNSUPPORTED_OPERATION, ERR_WIN as ERR_WIN,
    ERR_RMA_RANGE as ERR_RMA_RANGE, ERR_RMA_ATTACH as ERR_RMA_ATTACH,
    ERR_RMA_SHARED as ERR_RMA_SHARED, ERR_RMA_FLAVOR as ERR_RMA_FLAVOR,
    ERR_VALUE_TOO_LARGE as ERR_VALUE_TOO_LARGE, ERR_SESSION as ERR_SESSION,
    ERR_PROC_ABORTED as ERR_PROC_ABORTED, ERR_ERRHANDLER as ERR_ERRHANDLER,
    ERR_PROC_FAILED as ERR_PROC_FAILED, ERR_PROC_FAILED_PENDING as ERR_PROC_FAILED_PENDING,
    ERR_REVOKED as ERR_REVOKED, ERR_ABI as ERR_ABI, ERR_LASTCODE as ERR_LASTCODE,
    ORDER_C as ORDER_C, ORDER_FORTRAN as ORDER_FORTRAN, ORDER_F as ORDER_F,
    TYPECLASS_INTEGER as TYPECLASS_INTEGER, TYPECLASS_REAL as TYPECLASS_REAL,
    TYPECLASS_COMPLEX as TYPECLASS_COMPLEX, TYPECLASS_LOGICAL as TYPECLASS_LOGICAL,
    DISTRIBUTE_BLOCK as DISTRIBUTE_BLOCK, DISTRIBUTE_CYCLIC as DISTRIBUTE_CYCLIC,
    DISTRIBUTE_NONE as DISTRIBUTE_NONE, DISTRIBUTE_DFLT_DARG as DISTRIBUTE_DFLT_DARG,
    COMBINER_NAMED as COMBINER_NAMED, COMBINER_DUP as COMBINER_DUP,
    COMBINER_CONTIGUOUS as COMBINER_CONTIGUOUS, COMBINER_VECTOR as COMBINER_VECTOR,
    COMBINER_HVECTOR as COMBINER_HVECTOR, COMBINER_INDEXED as COMBINER_INDEXED,
    COMBINER_HINDEXED as COMBINER_HINDEXED, COMBINER_INDEXED_BLOCK as COMBINER_INDEXED_BLOCK,
    COMBINER_STRUCT as COMBINER_STRUCT, COMBINER_SUBARRAY as COMBINER_SUBARRAY,
    COMBINER_DARRAY as COMBINER_DARRAY, COMBINER_F90_REAL as COMBINER_F90_REAL,
    COMBINER_F90_COMPLEX as COMBINER_F90_COMPLEX, COMBINER_F90_INTEGER as COMBINER_F90_INTEGER,
    COMBINER_RESIZED as COMBINER_RESIZED, COMBINER_HINDEXED_BLOCK as COMBINER_HINDEXED_BLOCK,
    COMBINER_VALUE_INDEX as COMBINER_VALUE_INDEX, F_SOURCE as F_SOURCE, F_TAG as F_TAG,
    F_ERROR as F_ERROR, F_STATUS_SIZE as F_STATUS_SIZE, IDENT as IDENT, CONGRUENT as CONGRUENT,
    SIMILAR as SIMILAR, UNEQUAL as UNEQUAL, CART as CART, GRAPH as GRAPH,
    DIST_GRAPH as DIST_GRAPH, UNWEIGHTED as UNWEIGHTED, WEIGHTS_EMPTY as WEIGHTS_EMPTY,
    COMM_TYPE_SHARED as COMM_TYPE_SHARED, COMM_TYPE_HW_UNGUIDED as COMM_TYPE_HW_UNGUIDED,
    COMM_TYPE_HW_GUIDED as COMM_TYPE_HW_GUIDED,
    COMM_TYPE_RESOURCE_GUIDED as COMM_TYPE_RESOURCE_GUIDED, BSEND_OVERHEAD as BSEND_OVERHEAD,
    WIN_FLAVOR_CREATE as WIN_FLAVOR_CREATE, WIN_FLAVOR_ALLOCATE as WIN_FLAVOR_ALLOCATE,
    WIN_FLAVOR_DYNAMIC as WIN_FLAVOR_DYNAMIC, WIN_FLAVOR_SHARED as WIN_FLAVOR_SHARED,
    WIN_UNIFIED as WIN_UNIFIED, WIN_SEPARATE as WIN_SEPARATE, MODE_NOCHECK as MODE_NOCHECK,
    MODE_NOPRECEDE as MODE_NOPRECEDE, MODE_NOPUT as MODE_NOPUT, MODE_NOSTORE as MODE_NOSTORE,
    MODE_NOSUCCEED as MODE_NOSUCCEED, LOCK_EXCLUSIVE as LOCK_EXCLUSIVE,
    LOCK_SHARED as LOCK_SHARED, MODE_CREATE as MODE_CREATE, MODE_RDONLY as MODE_RDONLY,
    MODE_WRONLY as MODE_WRONLY, MODE_RDWR as MODE_RDWR,
    MODE_DELETE_ON_CLOSE as MODE_DELETE_ON_CLOSE, MODE_UNIQUE_OPEN as MODE_UNIQUE_OPEN,
    MODE_EXCL as MODE_EXCL, MODE_APPEND as MODE_APPEND, MODE_SEQUENTIAL as MODE_SEQUENTIAL,
    SEEK_SET as SEEK_SET, SEEK_CUR as SEEK_CUR, SEEK_END as SEEK_END,
    DISPLACEMENT_CURRENT as DISPLACEMENT_CURRENT, DISP_CUR as DISP_CUR,
    THREAD_SINGLE as THREAD_SINGLE, THREAD_FUNNELED as THREAD_FUNNELED,
    THREAD_SERIALIZED as THREAD_SERIALIZED, THREAD_MULTIPLE as THREAD_MULTIPLE,
    VERSION as VERSION, SUBVERSION as SUBVERSION, MAX_PROCESSOR_NAME as MAX_PROCESSOR_NAME,
    MAX_ERROR_STRING as MAX_ERROR_STRING, MAX_PORT_NAME as MAX_PORT_NAME,
    MAX_INFO_KEY as MAX_INFO_KEY, MAX_INFO_VAL as MAX_INFO_VAL,
    MAX_OBJECT_NAME as MAX_OBJECT_NAME, MAX_DATAREP_STRING as MAX_DATAREP_STRING,
    MAX_LIBRARY_VERSION_STRING as MAX_LIBRARY_VERSION_STRING,
    MAX_PSET_NAME_LEN as MAX_PSET_NAME_LEN, MAX_STRINGTAG_LEN as MAX_STRINGTAG_LEN
)
from shmnd.mpi.objects.errors import (
    Add_error_class as Add_error_class, Add_error_code as Add_error_code,
    Add_error_string as Add_error_string, Exception as Exception,
    Get_error_class as Get_error_class, Get_error_string as Get_error_string,
    Remove_error_class as Remove_error_class, Remove_error_code as Remove_error_code,
    Remove_error_string as Remove_error_string
)
from shmnd.mpi.objects.errhandler import (
    ERRHANDLER_NULL as ERRHANDLER_NULL, ERRORS_ABORT as ERRORS_ABORT,
    ERRORS_ARE_FATAL as ERRORS_ARE_FATAL, ERRORS_RETURN as ERRORS_RETURN, Errhandler as Errhandler,
    begin_with as _begin_with
)
from shmnd.mpi.buffers.sentinels import (
    BOTTOM as BOTTOM, BUFFER_AUTOMATIC as BUFFER_AUTOMATIC, IN_PLACE as IN_PLACE,
    BottomType as BottomType, BufferAutomaticType as BufferAutomaticType,
    InPlaceType as InPlaceType
)
from shmnd.mpi.buffers.buffer import (
    Alloc_mem as Alloc_mem, Free_mem as Free_mem, buffer as buffer, memory as memory
)
from shmnd.mpi.objects.info import INFO_ENV as INFO_ENV, INFO_NULL as INFO_NULL, Info as Info
from shmnd.mpi.communicators.group import (
    GROUP_EMPTY as GROUP_EMPTY, GROUP_NULL as GROUP_NULL, Group as Group
)
from shmnd.mpi.datatypes.datatype import (
    DATATYPE_NULL as DATATYPE_NULL, Datatype as Datatype, PACKED as PACKED, BYTE as BYTE,
    AINT as AINT, OFFSET as OFFSET, COUNT as COUNT, CHAR as CHAR, WCHAR as WCHAR,
    SIGNED_CHAR as SIGNED_CHAR, SHORT as SHORT, INT as INT, LONG as LONG, LONG_LONG as LONG_LONG,
    UNSIGNED_CHAR as UNSIGNED_CHAR, UNSIGNED_SHORT as UNSIGNED_SHORT, UNSIGNED as UNSIGNED,
    UNSIGNED_LONG as UNSIGNED_LONG, UNSIGNED_LONG_LONG as UNSIGNED_LONG_LONG, FLOAT as FLOAT,
    DOUBLE as DOUBLE, LONG_DOUBLE as LONG_DOUBLE, C_BOOL as C_BOOL, INT8_T as INT8_T,
    INT16_T as INT16_T, INT32_T as INT32_T, INT64_T as INT64_T, UINT8_T as UINT8_T,
    UINT16_T as UINT16_T, UINT32_T as UINT32_T, UINT64_T as UINT64_T, FLOAT16_T as FLOAT16_T,
    FLOAT32_T as FLOAT32_T, FLOAT64_T as FLOAT64_T, BFLOAT16_T as BFLOAT16_T,
    C_COMPLEX as C_COMPLEX, C_FLOAT_COMPLEX as C_FLOAT_COMPLEX,
    C_DOUBLE_COMPLEX as C_DOUBLE_COMPLEX, C_LONG_DOUBLE_COMPLEX as C_LONG_DOUBLE_COMPLEX,
    CXX_BOOL as CXX_BOOL, CXX_FLOAT_COMPLEX as CXX_FLOAT_COMPLEX,
    CXX_DOUBLE_COMPLEX as CXX_DOUBLE_COMPLEX, CXX_LONG_DOUBLE_COMPLEX as CXX_LONG_DOUBLE_COMPLEX,
    CHARACTER as CHARACTER, LOGICAL as LOGICAL, INTEGER as INTEGER, REAL as REAL,
    DOUBLE_PRECISION as DOUBLE_PRECISION, COMPLEX as COMPLEX, DOUBLE_COMPLEX as DOUBLE_COMPLEX,
    LOGICAL1 as LOGICAL1, LOGICAL2 as LOGICAL2, LOGICAL4 as LOGICAL4, LOGICAL8 as LOGICAL8,
    LOGICAL16 as LOGICAL16, INTEGER1 as INTEGER1, INTEGER2 as INTEGER2, INTEGER4 as INTEGER4,
    INTEGER8 as INTEGER8, INTEGER16 as INTEGER16, REAL2 as REAL2, REAL4 as REAL4, REAL8 as REAL8,
    REAL16 as REAL16, COMPLEX4 as COMPLEX4, COMPLEX8 as COMPLEX8, COMPLEX16 as COMPLEX16,
    COMPLEX32 as COMPLEX32, SHORT_INT as SHORT_INT, INT_INT as INT_INT, LONG_INT as LONG_INT,
    FLOAT_INT as FLOAT_INT, DOUBLE_INT as DOUBLE_INT, LONG_DOUBLE_INT as LONG_DOUBLE_INT,
    TWOINT as TWOINT, UNSIGNED_INT as UNSIGNED_INT, SIGNED_SHORT as SIGNED_SHORT,
    SIGNED_INT as SIGNED_INT, SIGNED_LONG as SIGNED_LONG, SIGNED_LONG_LONG as SIGNED_LONG_LONG,
    BOOL as BOOL, SINT8_T as SINT8_T, SINT16_T as SINT16_T, SINT32_T as SINT32_T,
    SINT64_T as SINT64_T, F_BOOL as F_BOOL, F_INT as F_INT, F_FLOAT as F_FLOAT,
    F_DOUBLE as F_DOUBLE, F_COMPLEX as F_COMPLEX, F_FLOAT_COMPLEX as F_FLOAT_COMPLEX,
    F_DOUBLE_COMPLEX as F_DOUBLE_COMPLEX,
    _datatype_create as _datatype_create, _typealign as _typealign, _typedict as _typedict,
    _typedict_c as _typedict_c, _typedict_f as _typedict_f
)
from shmnd.mpi.datatypes.decoding import (
    _datatype_decode as _datatype_decode, _typecode as _typecode
)
from shmnd.mpi.datatypes.addresses import (
    Aint_add as Aint_add, Aint_diff as Aint_diff, Get_address as Get_address
)
from shmnd.mpi.point_to_point.status import Status as Status
from shmnd.mpi.collectives.op import (
    BAND as BAND, BOR as BOR, BXOR as BXOR, LAND as LAND, LOR as LOR, LXOR as LXOR, MAX as MAX,
    MAXLOC as MAXLOC, MIN as MIN, MINLOC as MINLOC, NO_OP as NO_OP, OP_NULL as OP_NULL,
    PROD as PROD, REPLACE as REPLACE, SUM as SUM, Op as Op
)
from shmnd.mpi.buffers.pickle import Pickle as Pickle, pickle as pickle
from shmnd.mpi.environment import (
    Close_port as Close_port, Finalize as Finalize, Get_abi_fortran_info as Get_abi_fortran_info,
    Get_abi_info as Get_abi_info, Get_abi_version as Get_abi_version,
    Get_hw_resource_info as Get_hw_resource_info, Get_library_version as Get_library_version,
    Get_processor_name as Get_processor_name, Get_version as Get_version, Init as Init,
    Init_thread as Init_thread, Is_finalized as Is_finalized, Is_initialized as Is_initialized,
    Is_thread_main as Is_thread_main, Lookup_name as Lookup_name, Open_port as Open_port,
    Pcontrol as Pcontrol, Publish_name as Publish_name, Query_thread as Query_thread,
    Register_datarep as Register_datarep, Unpublish_name as Unpublish_name, Wtick as Wtick,
    Wtime as Wtime, _set_abort_status as _set_abort_status, get_vendor as get_vendor
)
from shmnd.mpi.point_to_point.request import REQUEST_NULL as REQUEST_NULL, Request as Request
from shmnd.mpi.point_to_point.persistent import Prequest as Prequest
from shmnd.mpi.point_to_point.generalized import Grequest as Grequest
from shmnd.mpi.point_to_point.message import (
    MESSAGE_NO_PROC as MESSAGE_NO_PROC, MESSAGE_NULL as MESSAGE_NULL, Message as Message
)
from shmnd.mpi.communicators.comm import COMM_NULL as COMM_NULL, Comm as Comm
from shmnd.mpi.communicators.intracomm import (
    COMM_SELF as COMM_SELF, COMM_WORLD as COMM_WORLD, Intracomm as Intracomm
)
from shmnd.mpi.communicators.intercomm import Intercomm as Intercomm
from shmnd.mpi.one_sided.win import WIN_NULL as WIN_NULL, Win as Win
from shmnd.mpi.files.file import FILE_NULL as FILE_NULL, File as File
from shmnd.mpi.communicators.session import SESSION_NULL as SESSION_NULL, Session as Session
from shmnd.mpi.objects.introspection import (
    _addressof as _addressof, _handleof as _handleof, _sizeof as _sizeof
)
from shmnd.mpi.communicators.topology import Topocomm as Topocomm
from shmnd.mpi.communicators.grids import Cartcomm as Cartcomm
from shmnd.mpi.communicators.graphs import Distgraphcomm as Distgraphcomm, Graphcomm as Graphcomm

_comm_lock_table = _coll_objects.lock_table
_shared_arrays.begin()
_leaving.begin()
_at_finalize(COMM_SELF._drop_attrs)
del _at_finalize, _coll_objects, _leaving, _shared_arrays
# fmt: on

if _TYPE_CHECKING:
    from shmnd.mpi.rc import Rc as _Rc


def _begin(settings: "_Rc") -> None:
    """Begin as `mpi4py.rc` and the environment say."""
    _start(settings)
    handlers = {
        "exception": ERRORS_RETURN,
        "default": ERRORS_ARE_FATAL,
        "abort": ERRORS_ABORT,
        "fatal": ERRORS_ARE_FATAL,
    }
    for comm in (COMM_SELF, COMM_WORLD):
        comm.Set_errhandler(handlers[settings.errors])
    _begin_with(None if settings.errors == "default" else handlers[settings.errors])


# Type checkers would take the value for no names.
globals()["__all__"] = [name for name in globals() if not name.startswith("_")]
_embed(globals())
del _embed
_begin(_settings_of(_rc))
