# SPDX-License-Identifier: Apache-2.0
"""fencepath's layer ``xe``: jobs, queues and memory of Intel's driver for Xe GPUs."""
