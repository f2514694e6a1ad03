# SPDX-License-Identifier: Apache-2.0
"""The layer ``amdgpu``: command submission, memory moves and faults of amdgpu and amdkfd."""
