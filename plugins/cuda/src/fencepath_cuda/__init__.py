# SPDX-License-Identifier: Apache-2.0
"""The layer ``cuda``: calls of the CUDA driver and runtime APIs, and what CUDA's rules of order say of them."""
