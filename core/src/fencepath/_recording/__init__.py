# SPDX-License-Identifier: Apache-2.0
"""Implementation of :mod:`fencepath.recording`: the recording on disk."""
