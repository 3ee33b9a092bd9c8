# SPDX-License-Identifier: Apache-2.0
# For the compiled modules only.
