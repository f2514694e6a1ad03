# SPDX-License-Identifier: Apache-2.0
"""Shared by all tests: live BPF tests are skipped with the reason where BPF cannot work, and fail when it is required."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background has them ignore these, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
