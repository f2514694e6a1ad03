# SPDX-License-Identifier: Apache-2.0
"""Measures the budgets of the design on this machine: ``python -m benchmarks``."""
