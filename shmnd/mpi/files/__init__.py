# SPDX-License-Identifier: Apache-2.0
"""Files that the ranks of a communicator open together: views, pointers, reads and writes.

Every rank has a descriptor of its own, and reads and writes by the calls of the kernel. Only the
shared pointer lies in memory that the ranks share. No call waits for another rank, except the
collective ones that say so.
"""
