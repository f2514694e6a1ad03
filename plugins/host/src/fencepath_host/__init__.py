# SPDX-License-Identifier: Apache-2.0
"""fencepath's layer ``host``: the Linux scheduler and interrupts."""
