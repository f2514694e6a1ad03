# SPDX-License-Identifier: Apache-2.0
"""The layer ``i915``: requests and memory of Intel's i915 driver."""
