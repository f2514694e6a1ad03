# SPDX-License-Identifier: Apache-2.0
"""Whose code an address of a recorded process is; see :mod:`fencepath.modules`."""
