# SPDX-License-Identifier: Apache-2.0
"""fencepath's layer ``amdgpu``: submissions, memory and faults of AMD's kernel drivers, amdgpu and amdkfd."""
