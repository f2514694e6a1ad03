# SPDX-License-Identifier: Apache-2.0
"""BPF at run time: compile, load, attach, share maps and drain rings.

BCC compiles; everything else is bpf(2) and perf_event_open(2), so that one set of rings, counters and maps serves the
programs of every plugin. Nothing here knows what the programs record.
"""
