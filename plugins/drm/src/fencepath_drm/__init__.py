# SPDX-License-Identifier: Apache-2.0
"""The layer ``drm``: jobs, fences and vblank of the kernel's GPU scheduler, on any DRM driver."""
