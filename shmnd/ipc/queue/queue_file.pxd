# SPDX-License-Identifier: Apache-2.0

from shmnd.ipc.queue.queue_c cimport shmnd_queue_shape


cdef read_shape(int fd, shmnd_queue_shape *shape)
