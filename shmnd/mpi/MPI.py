# SPDX-License-Identifier: Apache-2.0
"""The namespace of MPI, as `mpi4py.MPI` has it.

Importing it initializes MPI, unless `mpi4py.rc` says otherwise, and leaves it when Python ends.
"""

from typing import Any, NoReturn

from shmnd.mpi.buffer import (
    Alloc_mem as Alloc_mem,
)
from shmnd.mpi.buffer import (
    Free_mem as Free_mem,
)
from shmnd.mpi.buffer import (
    buffer as buffer,
)
from shmnd.mpi.buffer import (
    memory as memory,
)
from shmnd.mpi.comm import (
    COMM_NULL as COMM_NULL,
)
from shmnd.mpi.comm import (
    Comm as Comm,
)
from shmnd.mpi.constants import (
    ANY_SOURCE as ANY_SOURCE,
)
from shmnd.mpi.constants import (
    ANY_TAG as ANY_TAG,
)
from shmnd.mpi.constants import (
    APPNUM as APPNUM,
)
from shmnd.mpi.constants import (
    BSEND_OVERHEAD as BSEND_OVERHEAD,
)
from shmnd.mpi.constants import (
    CART as CART,
)
from shmnd.mpi.constants import (
    COMBINER_CONTIGUOUS as COMBINER_CONTIGUOUS,
)
from shmnd.mpi.constants import (
    COMBINER_DARRAY as COMBINER_DARRAY,
)
from shmnd.mpi.constants import (
    COMBINER_DUP as COMBINER_DUP,
)
from shmnd.mpi.constants import (
    COMBINER_F90_COMPLEX as COMBINER_F90_COMPLEX,
)
from shmnd.mpi.constants import (
    COMBINER_F90_INTEGER as COMBINER_F90_INTEGER,
)
from shmnd.mpi.constants import (
    COMBINER_F90_REAL as COMBINER_F90_REAL,
)
from shmnd.mpi.constants import (
    COMBINER_HINDEXED as COMBINER_HINDEXED,
)
from shmnd.mpi.constants import (
    COMBINER_HINDEXED_BLOCK as COMBINER_HINDEXED_BLOCK,
)
from shmnd.mpi.constants import (
    COMBINER_HVECTOR as COMBINER_HVECTOR,
)
from shmnd.mpi.constants import (
    COMBINER_INDEXED as COMBINER_INDEXED,
)
from shmnd.mpi.constants import (
    COMBINER_INDEXED_BLOCK as COMBINER_INDEXED_BLOCK,
)
from shmnd.mpi.constants import (
    COMBINER_NAMED as COMBINER_NAMED,
)
from shmnd.mpi.constants import (
    COMBINER_RESIZED as COMBINER_RESIZED,
)
from shmnd.mpi.constants import (
    COMBINER_STRUCT as COMBINER_STRUCT,
)
from shmnd.mpi.constants import (
    COMBINER_SUBARRAY as COMBINER_SUBARRAY,
)
from shmnd.mpi.constants import (
    COMBINER_VALUE_INDEX as COMBINER_VALUE_INDEX,
)
from shmnd.mpi.constants import (
    COMBINER_VECTOR as COMBINER_VECTOR,
)
from shmnd.mpi.constants import (
    COMM_TYPE_HW_GUIDED as COMM_TYPE_HW_GUIDED,
)
from shmnd.mpi.constants import (
    COMM_TYPE_HW_UNGUIDED as COMM_TYPE_HW_UNGUIDED,
)
from shmnd.mpi.constants import (
    COMM_TYPE_RESOURCE_GUIDED as COMM_TYPE_RESOURCE_GUIDED,
)
from shmnd.mpi.constants import (
    COMM_TYPE_SHARED as COMM_TYPE_SHARED,
)
from shmnd.mpi.constants import (
    CONGRUENT as CONGRUENT,
)
from shmnd.mpi.constants import (
    DISP_CUR as DISP_CUR,
)
from shmnd.mpi.constants import (
    DISPLACEMENT_CURRENT as DISPLACEMENT_CURRENT,
)
from shmnd.mpi.constants import (
    DIST_GRAPH as DIST_GRAPH,
)
from shmnd.mpi.constants import (
    DISTRIBUTE_BLOCK as DISTRIBUTE_BLOCK,
)
from shmnd.mpi.constants import (
    DISTRIBUTE_CYCLIC as DISTRIBUTE_CYCLIC,
)
from shmnd.mpi.constants import (
    DISTRIBUTE_DFLT_DARG as DISTRIBUTE_DFLT_DARG,
)
from shmnd.mpi.constants import (
    DISTRIBUTE_NONE as DISTRIBUTE_NONE,
)
from shmnd.mpi.constants import (
    ERR_ABI as ERR_ABI,
)
from shmnd.mpi.constants import (
    ERR_ACCESS as ERR_ACCESS,
)
from shmnd.mpi.constants import (
    ERR_AMODE as ERR_AMODE,
)
from shmnd.mpi.constants import (
    ERR_ARG as ERR_ARG,
)
from shmnd.mpi.constants import (
    ERR_ASSERT as ERR_ASSERT,
)
from shmnd.mpi.constants import (
    ERR_BAD_FILE as ERR_BAD_FILE,
)
from shmnd.mpi.constants import (
    ERR_BASE as ERR_BASE,
)
from shmnd.mpi.constants import (
    ERR_BUFFER as ERR_BUFFER,
)
from shmnd.mpi.constants import (
    ERR_COMM as ERR_COMM,
)
from shmnd.mpi.constants import (
    ERR_CONVERSION as ERR_CONVERSION,
)
from shmnd.mpi.constants import (
    ERR_COUNT as ERR_COUNT,
)
from shmnd.mpi.constants import (
    ERR_DIMS as ERR_DIMS,
)
from shmnd.mpi.constants import (
    ERR_DISP as ERR_DISP,
)
from shmnd.mpi.constants import (
    ERR_DUP_DATAREP as ERR_DUP_DATAREP,
)
from shmnd.mpi.constants import (
    ERR_ERRHANDLER as ERR_ERRHANDLER,
)
from shmnd.mpi.constants import (
    ERR_FILE as ERR_FILE,
)
from shmnd.mpi.constants import (
    ERR_FILE_EXISTS as ERR_FILE_EXISTS,
)
from shmnd.mpi.constants import (
    ERR_FILE_IN_USE as ERR_FILE_IN_USE,
)
from shmnd.mpi.constants import (
    ERR_GROUP as ERR_GROUP,
)
from shmnd.mpi.constants import (
    ERR_IN_STATUS as ERR_IN_STATUS,
)
from shmnd.mpi.constants import (
    ERR_INFO as ERR_INFO,
)
from shmnd.mpi.constants import (
    ERR_INFO_KEY as ERR_INFO_KEY,
)
from shmnd.mpi.constants import (
    ERR_INFO_NOKEY as ERR_INFO_NOKEY,
)
from shmnd.mpi.constants import (
    ERR_INFO_VALUE as ERR_INFO_VALUE,
)
from shmnd.mpi.constants import (
    ERR_INTERN as ERR_INTERN,
)
from shmnd.mpi.constants import (
    ERR_IO as ERR_IO,
)
from shmnd.mpi.constants import (
    ERR_KEYVAL as ERR_KEYVAL,
)
from shmnd.mpi.constants import (
    ERR_LASTCODE as ERR_LASTCODE,
)
from shmnd.mpi.constants import (
    ERR_LOCKTYPE as ERR_LOCKTYPE,
)
from shmnd.mpi.constants import (
    ERR_NAME as ERR_NAME,
)
from shmnd.mpi.constants import (
    ERR_NO_MEM as ERR_NO_MEM,
)
from shmnd.mpi.constants import (
    ERR_NO_SPACE as ERR_NO_SPACE,
)
from shmnd.mpi.constants import (
    ERR_NO_SUCH_FILE as ERR_NO_SUCH_FILE,
)
from shmnd.mpi.constants import (
    ERR_NOT_SAME as ERR_NOT_SAME,
)
from shmnd.mpi.constants import (
    ERR_OP as ERR_OP,
)
from shmnd.mpi.constants import (
    ERR_OTHER as ERR_OTHER,
)
from shmnd.mpi.constants import (
    ERR_PENDING as ERR_PENDING,
)
from shmnd.mpi.constants import (
    ERR_PORT as ERR_PORT,
)
from shmnd.mpi.constants import (
    ERR_PROC_ABORTED as ERR_PROC_ABORTED,
)
from shmnd.mpi.constants import (
    ERR_PROC_FAILED as ERR_PROC_FAILED,
)
from shmnd.mpi.constants import (
    ERR_PROC_FAILED_PENDING as ERR_PROC_FAILED_PENDING,
)
from shmnd.mpi.constants import (
    ERR_QUOTA as ERR_QUOTA,
)
from shmnd.mpi.constants import (
    ERR_RANK as ERR_RANK,
)
from shmnd.mpi.constants import (
    ERR_READ_ONLY as ERR_READ_ONLY,
)
from shmnd.mpi.constants import (
    ERR_REQUEST as ERR_REQUEST,
)
from shmnd.mpi.constants import (
    ERR_REVOKED as ERR_REVOKED,
)
from shmnd.mpi.constants import (
    ERR_RMA_ATTACH as ERR_RMA_ATTACH,
)
from shmnd.mpi.constants import (
    ERR_RMA_CONFLICT as ERR_RMA_CONFLICT,
)
from shmnd.mpi.constants import (
    ERR_RMA_FLAVOR as ERR_RMA_FLAVOR,
)
from shmnd.mpi.constants import (
    ERR_RMA_RANGE as ERR_RMA_RANGE,
)
from shmnd.mpi.constants import (
    ERR_RMA_SHARED as ERR_RMA_SHARED,
)
from shmnd.mpi.constants import (
    ERR_RMA_SYNC as ERR_RMA_SYNC,
)
from shmnd.mpi.constants import (
    ERR_ROOT as ERR_ROOT,
)
from shmnd.mpi.constants import (
    ERR_SERVICE as ERR_SERVICE,
)
from shmnd.mpi.constants import (
    ERR_SESSION as ERR_SESSION,
)
from shmnd.mpi.constants import (
    ERR_SIZE as ERR_SIZE,
)
from shmnd.mpi.constants import (
    ERR_SPAWN as ERR_SPAWN,
)
from shmnd.mpi.constants import (
    ERR_TAG as ERR_TAG,
)
from shmnd.mpi.constants import (
    ERR_TOPOLOGY as ERR_TOPOLOGY,
)
from shmnd.mpi.constants import (
    ERR_TRUNCATE as ERR_TRUNCATE,
)
from shmnd.mpi.constants import (
    ERR_TYPE as ERR_TYPE,
)
from shmnd.mpi.constants import (
    ERR_UNKNOWN as ERR_UNKNOWN,
)
from shmnd.mpi.constants import (
    ERR_UNSUPPORTED_DATAREP as ERR_UNSUPPORTED_DATAREP,
)
from shmnd.mpi.constants import (
    ERR_UNSUPPORTED_OPERATION as ERR_UNSUPPORTED_OPERATION,
)
from shmnd.mpi.constants import (
    ERR_VALUE_TOO_LARGE as ERR_VALUE_TOO_LARGE,
)
from shmnd.mpi.constants import (
    ERR_WIN as ERR_WIN,
)
from shmnd.mpi.constants import (
    F_ERROR as F_ERROR,
)
from shmnd.mpi.constants import (
    F_SOURCE as F_SOURCE,
)
from shmnd.mpi.constants import (
    F_STATUS_SIZE as F_STATUS_SIZE,
)
from shmnd.mpi.constants import (
    F_TAG as F_TAG,
)
from shmnd.mpi.constants import (
    GRAPH as GRAPH,
)
from shmnd.mpi.constants import (
    IDENT as IDENT,
)
from shmnd.mpi.constants import (
    IO as IO,
)
from shmnd.mpi.constants import (
    KEYVAL_INVALID as KEYVAL_INVALID,
)
from shmnd.mpi.constants import (
    LASTUSEDCODE as LASTUSEDCODE,
)
from shmnd.mpi.constants import (
    LOCK_EXCLUSIVE as LOCK_EXCLUSIVE,
)
from shmnd.mpi.constants import (
    LOCK_SHARED as LOCK_SHARED,
)
from shmnd.mpi.constants import (
    MAX_DATAREP_STRING as MAX_DATAREP_STRING,
)
from shmnd.mpi.constants import (
    MAX_ERROR_STRING as MAX_ERROR_STRING,
)
from shmnd.mpi.constants import (
    MAX_INFO_KEY as MAX_INFO_KEY,
)
from shmnd.mpi.constants import (
    MAX_INFO_VAL as MAX_INFO_VAL,
)
from shmnd.mpi.constants import (
    MAX_LIBRARY_VERSION_STRING as MAX_LIBRARY_VERSION_STRING,
)
from shmnd.mpi.constants import (
    MAX_OBJECT_NAME as MAX_OBJECT_NAME,
)
from shmnd.mpi.constants import (
    MAX_PORT_NAME as MAX_PORT_NAME,
)
from shmnd.mpi.constants import (
    MAX_PROCESSOR_NAME as MAX_PROCESSOR_NAME,
)
from shmnd.mpi.constants import (
    MAX_PSET_NAME_LEN as MAX_PSET_NAME_LEN,
)
from shmnd.mpi.constants import (
    MAX_STRINGTAG_LEN as MAX_STRINGTAG_LEN,
)
from shmnd.mpi.constants import (
    MODE_APPEND as MODE_APPEND,
)
from shmnd.mpi.constants import (
    MODE_CREATE as MODE_CREATE,
)
from shmnd.mpi.constants import (
    MODE_DELETE_ON_CLOSE as MODE_DELETE_ON_CLOSE,
)
from shmnd.mpi.constants import (
    MODE_EXCL as MODE_EXCL,
)
from shmnd.mpi.constants import (
    MODE_NOCHECK as MODE_NOCHECK,
)
from shmnd.mpi.constants import (
    MODE_NOPRECEDE as MODE_NOPRECEDE,
)
from shmnd.mpi.constants import (
    MODE_NOPUT as MODE_NOPUT,
)
from shmnd.mpi.constants import (
    MODE_NOSTORE as MODE_NOSTORE,
)
from shmnd.mpi.constants import (
    MODE_NOSUCCEED as MODE_NOSUCCEED,
)
from shmnd.mpi.constants import (
    MODE_RDONLY as MODE_RDONLY,
)
from shmnd.mpi.constants import (
    MODE_RDWR as MODE_RDWR,
)
from shmnd.mpi.constants import (
    MODE_SEQUENTIAL as MODE_SEQUENTIAL,
)
from shmnd.mpi.constants import (
    MODE_UNIQUE_OPEN as MODE_UNIQUE_OPEN,
)
from shmnd.mpi.constants import (
    MODE_WRONLY as MODE_WRONLY,
)
from shmnd.mpi.constants import (
    ORDER_C as ORDER_C,
)
from shmnd.mpi.constants import (
    ORDER_F as ORDER_F,
)
from shmnd.mpi.constants import (
    ORDER_FORTRAN as ORDER_FORTRAN,
)
from shmnd.mpi.constants import (
    PROC_NULL as PROC_NULL,
)
from shmnd.mpi.constants import (
    ROOT as ROOT,
)
from shmnd.mpi.constants import (
    SEEK_CUR as SEEK_CUR,
)
from shmnd.mpi.constants import (
    SEEK_END as SEEK_END,
)
from shmnd.mpi.constants import (
    SEEK_SET as SEEK_SET,
)
from shmnd.mpi.constants import (
    SIMILAR as SIMILAR,
)
from shmnd.mpi.constants import (
    SUBVERSION as SUBVERSION,
)
from shmnd.mpi.constants import (
    SUCCESS as SUCCESS,
)
from shmnd.mpi.constants import (
    TAG_UB as TAG_UB,
)
from shmnd.mpi.constants import (
    THREAD_FUNNELED as THREAD_FUNNELED,
)
from shmnd.mpi.constants import (
    THREAD_MULTIPLE as THREAD_MULTIPLE,
)
from shmnd.mpi.constants import (
    THREAD_SERIALIZED as THREAD_SERIALIZED,
)
from shmnd.mpi.constants import (
    THREAD_SINGLE as THREAD_SINGLE,
)
from shmnd.mpi.constants import (
    TYPECLASS_COMPLEX as TYPECLASS_COMPLEX,
)
from shmnd.mpi.constants import (
    TYPECLASS_INTEGER as TYPECLASS_INTEGER,
)
from shmnd.mpi.constants import (
    TYPECLASS_LOGICAL as TYPECLASS_LOGICAL,
)
from shmnd.mpi.constants import (
    TYPECLASS_REAL as TYPECLASS_REAL,
)
from shmnd.mpi.constants import (
    UNDEFINED as UNDEFINED,
)
from shmnd.mpi.constants import (
    UNEQUAL as UNEQUAL,
)
from shmnd.mpi.constants import (
    UNIVERSE_SIZE as UNIVERSE_SIZE,
)
from shmnd.mpi.constants import (
    UNWEIGHTED as UNWEIGHTED,
)
from shmnd.mpi.constants import (
    VERSION as VERSION,
)
from shmnd.mpi.constants import (
    WEIGHTS_EMPTY as WEIGHTS_EMPTY,
)
from shmnd.mpi.constants import (
    WIN_BASE as WIN_BASE,
)
from shmnd.mpi.constants import (
    WIN_CREATE_FLAVOR as WIN_CREATE_FLAVOR,
)
from shmnd.mpi.constants import (
    WIN_DISP_UNIT as WIN_DISP_UNIT,
)
from shmnd.mpi.constants import (
    WIN_FLAVOR as WIN_FLAVOR,
)
from shmnd.mpi.constants import (
    WIN_FLAVOR_ALLOCATE as WIN_FLAVOR_ALLOCATE,
)
from shmnd.mpi.constants import (
    WIN_FLAVOR_CREATE as WIN_FLAVOR_CREATE,
)
from shmnd.mpi.constants import (
    WIN_FLAVOR_DYNAMIC as WIN_FLAVOR_DYNAMIC,
)
from shmnd.mpi.constants import (
    WIN_FLAVOR_SHARED as WIN_FLAVOR_SHARED,
)
from shmnd.mpi.constants import (
    WIN_MODEL as WIN_MODEL,
)
from shmnd.mpi.constants import (
    WIN_SEPARATE as WIN_SEPARATE,
)
from shmnd.mpi.constants import (
    WIN_SIZE as WIN_SIZE,
)
from shmnd.mpi.constants import (
    WIN_UNIFIED as WIN_UNIFIED,
)
from shmnd.mpi.constants import (
    WTIME_IS_GLOBAL as WTIME_IS_GLOBAL,
)
from shmnd.mpi.datatype import (
    AINT as AINT,
)
from shmnd.mpi.datatype import (
    BFLOAT16_T as BFLOAT16_T,
)
from shmnd.mpi.datatype import (
    BOOL as BOOL,
)
from shmnd.mpi.datatype import (
    BYTE as BYTE,
)
from shmnd.mpi.datatype import (
    C_BOOL as C_BOOL,
)
from shmnd.mpi.datatype import (
    C_COMPLEX as C_COMPLEX,
)
from shmnd.mpi.datatype import (
    C_DOUBLE_COMPLEX as C_DOUBLE_COMPLEX,
)
from shmnd.mpi.datatype import (
    C_FLOAT_COMPLEX as C_FLOAT_COMPLEX,
)
from shmnd.mpi.datatype import (
    C_LONG_DOUBLE_COMPLEX as C_LONG_DOUBLE_COMPLEX,
)
from shmnd.mpi.datatype import (
    CHAR as CHAR,
)
from shmnd.mpi.datatype import (
    CHARACTER as CHARACTER,
)
from shmnd.mpi.datatype import (
    COMPLEX as COMPLEX,
)
from shmnd.mpi.datatype import (
    COMPLEX4 as COMPLEX4,
)
from shmnd.mpi.datatype import (
    COMPLEX8 as COMPLEX8,
)
from shmnd.mpi.datatype import (
    COMPLEX16 as COMPLEX16,
)
from shmnd.mpi.datatype import (
    COMPLEX32 as COMPLEX32,
)
from shmnd.mpi.datatype import (
    COUNT as COUNT,
)
from shmnd.mpi.datatype import (
    CXX_BOOL as CXX_BOOL,
)
from shmnd.mpi.datatype import (
    CXX_DOUBLE_COMPLEX as CXX_DOUBLE_COMPLEX,
)
from shmnd.mpi.datatype import (
    CXX_FLOAT_COMPLEX as CXX_FLOAT_COMPLEX,
)
from shmnd.mpi.datatype import (
    CXX_LONG_DOUBLE_COMPLEX as CXX_LONG_DOUBLE_COMPLEX,
)
from shmnd.mpi.datatype import (
    DATATYPE_NULL as DATATYPE_NULL,
)
from shmnd.mpi.datatype import (
    DOUBLE as DOUBLE,
)
from shmnd.mpi.datatype import (
    DOUBLE_COMPLEX as DOUBLE_COMPLEX,
)
from shmnd.mpi.datatype import (
    DOUBLE_INT as DOUBLE_INT,
)
from shmnd.mpi.datatype import (
    DOUBLE_PRECISION as DOUBLE_PRECISION,
)
from shmnd.mpi.datatype import (
    F_BOOL as F_BOOL,
)
from shmnd.mpi.datatype import (
    F_COMPLEX as F_COMPLEX,
)
from shmnd.mpi.datatype import (
    F_DOUBLE as F_DOUBLE,
)
from shmnd.mpi.datatype import (
    F_DOUBLE_COMPLEX as F_DOUBLE_COMPLEX,
)
from shmnd.mpi.datatype import (
    F_FLOAT as F_FLOAT,
)
from shmnd.mpi.datatype import (
    F_FLOAT_COMPLEX as F_FLOAT_COMPLEX,
)
from shmnd.mpi.datatype import (
    F_INT as F_INT,
)
from shmnd.mpi.datatype import (
    FLOAT as FLOAT,
)
from shmnd.mpi.datatype import (
    FLOAT16_T as FLOAT16_T,
)
from shmnd.mpi.datatype import (
    FLOAT32_T as FLOAT32_T,
)
from shmnd.mpi.datatype import (
    FLOAT64_T as FLOAT64_T,
)
from shmnd.mpi.datatype import (
    FLOAT_INT as FLOAT_INT,
)
from shmnd.mpi.datatype import (
    INT as INT,
)
from shmnd.mpi.datatype import (
    INT8_T as INT8_T,
)
from shmnd.mpi.datatype import (
    INT16_T as INT16_T,
)
from shmnd.mpi.datatype import (
    INT32_T as INT32_T,
)
from shmnd.mpi.datatype import (
    INT64_T as INT64_T,
)
from shmnd.mpi.datatype import (
    INT_INT as INT_INT,
)
from shmnd.mpi.datatype import (
    INTEGER as INTEGER,
)
from shmnd.mpi.datatype import (
    INTEGER1 as INTEGER1,
)
from shmnd.mpi.datatype import (
    INTEGER2 as INTEGER2,
)
from shmnd.mpi.datatype import (
    INTEGER4 as INTEGER4,
)
from shmnd.mpi.datatype import (
    INTEGER8 as INTEGER8,
)
from shmnd.mpi.datatype import (
    INTEGER16 as INTEGER16,
)
from shmnd.mpi.datatype import (
    LOGICAL as LOGICAL,
)
from shmnd.mpi.datatype import (
    LOGICAL1 as LOGICAL1,
)
from shmnd.mpi.datatype import (
    LOGICAL2 as LOGICAL2,
)
from shmnd.mpi.datatype import (
    LOGICAL4 as LOGICAL4,
)
from shmnd.mpi.datatype import (
    LOGICAL8 as LOGICAL8,
)
from shmnd.mpi.datatype import (
    LOGICAL16 as LOGICAL16,
)
from shmnd.mpi.datatype import (
    LONG as LONG,
)
from shmnd.mpi.datatype import (
    LONG_DOUBLE as LONG_DOUBLE,
)
from shmnd.mpi.datatype import (
    LONG_DOUBLE_INT as LONG_DOUBLE_INT,
)
from shmnd.mpi.datatype import (
    LONG_INT as LONG_INT,
)
from shmnd.mpi.datatype import (
    LONG_LONG as LONG_LONG,
)
from shmnd.mpi.datatype import (
    OFFSET as OFFSET,
)
from shmnd.mpi.datatype import (
    PACKED as PACKED,
)
from shmnd.mpi.datatype import (
    REAL as REAL,
)
from shmnd.mpi.datatype import (
    REAL2 as REAL2,
)
from shmnd.mpi.datatype import (
    REAL4 as REAL4,
)
from shmnd.mpi.datatype import (
    REAL8 as REAL8,
)
from shmnd.mpi.datatype import (
    REAL16 as REAL16,
)
from shmnd.mpi.datatype import (
    SHORT as SHORT,
)
from shmnd.mpi.datatype import (
    SHORT_INT as SHORT_INT,
)
from shmnd.mpi.datatype import (
    SIGNED_CHAR as SIGNED_CHAR,
)
from shmnd.mpi.datatype import (
    SIGNED_INT as SIGNED_INT,
)
from shmnd.mpi.datatype import (
    SIGNED_LONG as SIGNED_LONG,
)
from shmnd.mpi.datatype import (
    SIGNED_LONG_LONG as SIGNED_LONG_LONG,
)
from shmnd.mpi.datatype import (
    SIGNED_SHORT as SIGNED_SHORT,
)
from shmnd.mpi.datatype import (
    SINT8_T as SINT8_T,
)
from shmnd.mpi.datatype import (
    SINT16_T as SINT16_T,
)
from shmnd.mpi.datatype import (
    SINT32_T as SINT32_T,
)
from shmnd.mpi.datatype import (
    SINT64_T as SINT64_T,
)
from shmnd.mpi.datatype import (
    TWOINT as TWOINT,
)
from shmnd.mpi.datatype import (
    UINT8_T as UINT8_T,
)
from shmnd.mpi.datatype import (
    UINT16_T as UINT16_T,
)
from shmnd.mpi.datatype import (
    UINT32_T as UINT32_T,
)
from shmnd.mpi.datatype import (
    UINT64_T as UINT64_T,
)
from shmnd.mpi.datatype import (
    UNSIGNED as UNSIGNED,
)
from shmnd.mpi.datatype import (
    UNSIGNED_CHAR as UNSIGNED_CHAR,
)
from shmnd.mpi.datatype import (
    UNSIGNED_INT as UNSIGNED_INT,
)
from shmnd.mpi.datatype import (
    UNSIGNED_LONG as UNSIGNED_LONG,
)
from shmnd.mpi.datatype import (
    UNSIGNED_LONG_LONG as UNSIGNED_LONG_LONG,
)
from shmnd.mpi.datatype import (
    UNSIGNED_SHORT as UNSIGNED_SHORT,
)
from shmnd.mpi.datatype import (
    WCHAR as WCHAR,
)
from shmnd.mpi.datatype import (
    Aint_add as Aint_add,
)
from shmnd.mpi.datatype import (
    Aint_diff as Aint_diff,
)
from shmnd.mpi.datatype import (
    Datatype as Datatype,
)
from shmnd.mpi.datatype import (
    Get_address as Get_address,
)
from shmnd.mpi.datatype import (
    _datatype_create as _datatype_create,
)
from shmnd.mpi.datatype import (
    _datatype_decode as _datatype_decode,
)
from shmnd.mpi.datatype import (
    _typealign as _typealign,
)
from shmnd.mpi.datatype import (
    _typecode as _typecode,
)
from shmnd.mpi.datatype import (
    _typedict as _typedict,
)
from shmnd.mpi.datatype import (
    _typedict_c as _typedict_c,
)
from shmnd.mpi.datatype import (
    _typedict_f as _typedict_f,
)
from shmnd.mpi.environment import (
    Close_port as Close_port,
)
from shmnd.mpi.environment import (
    Finalize as Finalize,
)
from shmnd.mpi.environment import (
    Get_abi_fortran_info as Get_abi_fortran_info,
)
from shmnd.mpi.environment import (
    Get_abi_info as Get_abi_info,
)
from shmnd.mpi.environment import (
    Get_abi_version as Get_abi_version,
)
from shmnd.mpi.environment import (
    Get_hw_resource_info as Get_hw_resource_info,
)
from shmnd.mpi.environment import (
    Get_library_version as Get_library_version,
)
from shmnd.mpi.environment import (
    Get_processor_name as Get_processor_name,
)
from shmnd.mpi.environment import (
    Get_version as Get_version,
)
from shmnd.mpi.environment import (
    Init as Init,
)
from shmnd.mpi.environment import (
    Init_thread as Init_thread,
)
from shmnd.mpi.environment import (
    Is_finalized as Is_finalized,
)
from shmnd.mpi.environment import (
    Is_initialized as Is_initialized,
)
from shmnd.mpi.environment import (
    Is_thread_main as Is_thread_main,
)
from shmnd.mpi.environment import (
    Lookup_name as Lookup_name,
)
from shmnd.mpi.environment import (
    Open_port as Open_port,
)
from shmnd.mpi.environment import (
    Pcontrol as Pcontrol,
)
from shmnd.mpi.environment import (
    Publish_name as Publish_name,
)
from shmnd.mpi.environment import (
    Query_thread as Query_thread,
)
from shmnd.mpi.environment import (
    Register_datarep as Register_datarep,
)
from shmnd.mpi.environment import (
    Unpublish_name as Unpublish_name,
)
from shmnd.mpi.environment import (
    Wtick as Wtick,
)
from shmnd.mpi.environment import (
    Wtime as Wtime,
)
from shmnd.mpi.environment import (
    _set_abort_status as _set_abort_status,
)
from shmnd.mpi.environment import (
    get_vendor as get_vendor,
)
from shmnd.mpi.environment import start as _start
from shmnd.mpi.errhandler import (
    ERRHANDLER_NULL as ERRHANDLER_NULL,
)
from shmnd.mpi.errhandler import (
    ERRORS_ABORT as ERRORS_ABORT,
)
from shmnd.mpi.errhandler import (
    ERRORS_ARE_FATAL as ERRORS_ARE_FATAL,
)
from shmnd.mpi.errhandler import (
    ERRORS_RETURN as ERRORS_RETURN,
)
from shmnd.mpi.errhandler import (
    Errhandler as Errhandler,
)
from shmnd.mpi.errors import (
    Add_error_class as Add_error_class,
)
from shmnd.mpi.errors import (
    Add_error_code as Add_error_code,
)
from shmnd.mpi.errors import (
    Add_error_string as Add_error_string,
)
from shmnd.mpi.errors import (
    Exception as Exception,
)
from shmnd.mpi.errors import (
    Get_error_class as Get_error_class,
)
from shmnd.mpi.errors import (
    Get_error_string as Get_error_string,
)
from shmnd.mpi.errors import (
    Remove_error_class as Remove_error_class,
)
from shmnd.mpi.errors import (
    Remove_error_code as Remove_error_code,
)
from shmnd.mpi.errors import (
    Remove_error_string as Remove_error_string,
)
from shmnd.mpi.file import (
    FILE_NULL as FILE_NULL,
)
from shmnd.mpi.file import (
    File as File,
)
from shmnd.mpi.group import (
    GROUP_EMPTY as GROUP_EMPTY,
)
from shmnd.mpi.group import (
    GROUP_NULL as GROUP_NULL,
)
from shmnd.mpi.group import (
    Group as Group,
)
from shmnd.mpi.info import (
    INFO_ENV as INFO_ENV,
)
from shmnd.mpi.info import (
    INFO_NULL as INFO_NULL,
)
from shmnd.mpi.info import (
    Info as Info,
)
from shmnd.mpi.intercomm import (
    Intercomm as Intercomm,
)
from shmnd.mpi.intracomm import (
    COMM_SELF as COMM_SELF,
)
from shmnd.mpi.intracomm import (
    COMM_WORLD as COMM_WORLD,
)
from shmnd.mpi.intracomm import (
    Intracomm as Intracomm,
)
from shmnd.mpi.message import (
    MESSAGE_NO_PROC as MESSAGE_NO_PROC,
)
from shmnd.mpi.message import (
    MESSAGE_NULL as MESSAGE_NULL,
)
from shmnd.mpi.message import (
    Message as Message,
)
from shmnd.mpi.op import (
    BAND as BAND,
)
from shmnd.mpi.op import (
    BOR as BOR,
)
from shmnd.mpi.op import (
    BXOR as BXOR,
)
from shmnd.mpi.op import (
    LAND as LAND,
)
from shmnd.mpi.op import (
    LOR as LOR,
)
from shmnd.mpi.op import (
    LXOR as LXOR,
)
from shmnd.mpi.op import (
    MAX as MAX,
)
from shmnd.mpi.op import (
    MAXLOC as MAXLOC,
)
from shmnd.mpi.op import (
    MIN as MIN,
)
from shmnd.mpi.op import (
    MINLOC as MINLOC,
)
from shmnd.mpi.op import (
    NO_OP as NO_OP,
)
from shmnd.mpi.op import (
    OP_NULL as OP_NULL,
)
from shmnd.mpi.op import (
    PROD as PROD,
)
from shmnd.mpi.op import (
    REPLACE as REPLACE,
)
from shmnd.mpi.op import (
    SUM as SUM,
)
from shmnd.mpi.op import (
    Op as Op,
)
from shmnd.mpi.pickle import (
    Pickle as Pickle,
)
from shmnd.mpi.pickle import (
    pickle as pickle,
)
from shmnd.mpi.place import (
    _addressof as _addressof,
)
from shmnd.mpi.place import (
    _handleof as _handleof,
)
from shmnd.mpi.place import (
    _sizeof as _sizeof,
)
from shmnd.mpi.rc import rc as _rc
from shmnd.mpi.request import (
    REQUEST_NULL as REQUEST_NULL,
)
from shmnd.mpi.request import (
    Grequest as Grequest,
)
from shmnd.mpi.request import (
    Prequest as Prequest,
)
from shmnd.mpi.request import (
    Request as Request,
)
from shmnd.mpi.sentinels import (
    BOTTOM as BOTTOM,
)
from shmnd.mpi.sentinels import (
    BUFFER_AUTOMATIC as BUFFER_AUTOMATIC,
)
from shmnd.mpi.sentinels import (
    IN_PLACE as IN_PLACE,
)
from shmnd.mpi.sentinels import (
    BottomType as BottomType,
)
from shmnd.mpi.sentinels import (
    BufferAutomaticType as BufferAutomaticType,
)
from shmnd.mpi.sentinels import (
    InPlaceType as InPlaceType,
)
from shmnd.mpi.session import (
    SESSION_NULL as SESSION_NULL,
)
from shmnd.mpi.session import (
    Session as Session,
)
from shmnd.mpi.signatures import embed as _embed
from shmnd.mpi.status import (
    Status as Status,
)
from shmnd.mpi.topology import (
    Cartcomm as Cartcomm,
)
from shmnd.mpi.topology import (
    Distgraphcomm as Distgraphcomm,
)
from shmnd.mpi.topology import (
    Graphcomm as Graphcomm,
)
from shmnd.mpi.topology import (
    Topocomm as Topocomm,
)
from shmnd.mpi.win import (
    WIN_NULL as WIN_NULL,
)
from shmnd.mpi.win import (
    Win as Win,
)


def __getattr__(name: str) -> NoReturn:
    # Extension modules read this when they are imported, from the import system.
    from sys import _getframe as frame  # modules are not in this namespace

    if name == "__pyx_capi__" and frame(1).f_globals.get("__name__", "").startswith("importlib."):
        raise ImportError(
            "this extension module uses the C interface of mpi4py, which shmnd.mpi does not have: "
            "run the program with a real MPI and mpi4py"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _begin(rc: Any) -> None:
    """Begin as `mpi4py.rc` says."""
    _start(rc)
    handlers = {
        "exception": ERRORS_RETURN,
        "default": ERRORS_ARE_FATAL,
        "abort": ERRORS_ABORT,
        "fatal": ERRORS_ARE_FATAL,
    }
    if rc.errors not in handlers:
        raise ValueError(f"rc.errors = {rc.errors!r}: expected one of {', '.join(handlers)}")
    for comm in (COMM_SELF, COMM_WORLD):
        comm.Set_errhandler(handlers[rc.errors])


_embed(globals())
_begin(_rc)
