# SPDX-License-Identifier: Apache-2.0
# Implementation of fencepath.calls.
