# SPDX-License-Identifier: Apache-2.0
"""Reports as text for people."""
