# SPDX-License-Identifier: Apache-2.0
"""The layer ``nvidia``: what NVIDIA's kernel driver does for a process: ioctls, interrupts, errors."""
