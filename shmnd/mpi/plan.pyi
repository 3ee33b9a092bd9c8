# SPDX-License-Identifier: Apache-2.0
from shmnd.mpi.operation import Operation


class Side:
    ...

class Plan(Operation):
    ...
