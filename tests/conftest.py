# SPDX-License-Identifier: Apache-2.0
"""Shared by all tests: live BPF tests are skipped with the reason where BPF cannot work, and fail when it is required."""

from __future__ import annotations
