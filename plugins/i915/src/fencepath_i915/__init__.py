# SPDX-License-Identifier: Apache-2.0
"""fencepath's layer ``i915``: requests and memory of Intel's driver for GPUs before Xe2."""
