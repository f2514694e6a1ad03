# SPDX-License-Identifier: Apache-2.0
"""Recording: what to attach, attaching it, following the targets, and writing what comes. No meaning is made here."""
