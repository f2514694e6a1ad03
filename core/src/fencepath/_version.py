# SPDX-License-Identifier: Apache-2.0
"""Version of the distribution, read by the build."""

__version__ = "0.1.0"
