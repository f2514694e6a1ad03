# SPDX-License-Identifier: Apache-2.0
"""fencepath layer for libacme."""

__all__ = ["__version__"]

__version__ = "0.1.0"
