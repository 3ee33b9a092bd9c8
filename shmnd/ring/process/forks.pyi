# SPDX-License-Identifier: Apache-2.0
# What it has is for the compiled modules alone.
