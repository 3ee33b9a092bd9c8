# SPDX-License-Identifier: Apache-2.0
"""What all objects of MPI share: handles, attributes, errors and hints."""
