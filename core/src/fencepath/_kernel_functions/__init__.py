# SPDX-License-Identifier: Apache-2.0
"""Functions of the kernel and its modules; the public names are in :mod:`fencepath.kernel_functions`."""
