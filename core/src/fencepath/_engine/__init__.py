# SPDX-License-Identifier: Apache-2.0
"""From batches to paths: processes and threads, activities, joins, timelines, the walk, the causal graph."""
