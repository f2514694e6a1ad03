# SPDX-License-Identifier: Apache-2.0
"""Layers that core itself needs, registered through the same hooks as any plugin: marks and the life of processes."""
