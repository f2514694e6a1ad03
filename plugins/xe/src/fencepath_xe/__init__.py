# SPDX-License-Identifier: Apache-2.0
"""The layer ``xe``: jobs, queues and memory of Intel's xe driver."""
