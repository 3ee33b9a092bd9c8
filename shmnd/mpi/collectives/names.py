# SPDX-License-Identifier: Apache-2.0
"""The calls that all ranks of a communicator make together, and their numbers."""

from typing import Final

_VECTORS = ("Gather", "Scatter", "Allgather", "Alltoall")
_BUFFERS = (
    "Barrier",
    "Bcast",
    *_VECTORS,
    *[name + "v" for name in _VECTORS],
    "Alltoallw",
    "Reduce",
    "Allreduce",
    "Reduce_scatter",
    "Reduce_scatter_block",
    "Scan",
    "Exscan",
    "Neighbor_allgather",
    "Neighbor_allgatherv",
    "Neighbor_alltoall",
    "Neighbor_alltoallv",
    "Neighbor_alltoallw",
)
_OBJECTS = (
    "bcast",
    "gather",
    "scatter",
    "allgather",
    "alltoall",
    "reduce",
    "allreduce",
    "scan",
    "exscan",
    "neighbor_allgather",
    "neighbor_alltoall",
)
_MAKING = (
    "Dup",
    "Idup",
    "Create",
    "Split",
    "Split_type",
    "Sub",
    "Create_cart",
    "Create_graph",
    "Create_dist_graph_adjacent",
    "Create_dist_graph",
    "Create_intercomm",
    "Merge",
    "Agree",
    "Shrink",
    "Ishrink",
)
_WINDOWS = ("Create", "Allocate", "Allocate_shared", "Create_dynamic", "Fence", "Free")
_FILES = (
    "Open",
    "Close",
    "Set_size",
    "Preallocate",
    "Set_atomicity",
    "Set_view",
    "Seek_shared",
    "Read_ordered",
    "Write_ordered",
    "Read_ordered_begin",
    "Write_ordered_begin",
)
NAMES: Final = (
    "another collective",
    *_OBJECTS,
    *_BUFFERS,
    *["I" + name.lower() for name in _BUFFERS],
    *[name + "_init" for name in _BUFFERS],
    *_MAKING,
    *["Win." + name for name in _WINDOWS],
    *["File." + name for name in _FILES],
)
KINDS: Final = {name: number for number, name in enumerate(NAMES)}
"""The number of a call in the tags of its messages."""
