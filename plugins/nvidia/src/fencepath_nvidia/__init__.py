# SPDX-License-Identifier: Apache-2.0
"""fencepath's layer ``nvidia``: NVIDIA's kernel driver."""
