# SPDX-License-Identifier: Apache-2.0
"""What every plugin must satisfy, one function a requirement; each raises AssertionError with what to mend."""

from __future__ import annotations

from fencepath.testing._columns import columns_are_given
from fencepath.testing._hooks import hooks_are_known, imports_without_root
from fencepath.testing._kinds import (
    README_SECTIONS,
    kinds_are_well_formed,
    probes_are_data,
    readme_has_sections,
    readme_names_kinds,
    rules_name_known_kinds,
)
from fencepath.testing._programs import bpf_compiles_and_loads
from fencepath.testing._records import (
    decoder_survives_random_bytes,
    keys_are_filled,
    records_match_c_layout,
    span_attributes_are_plain,
)

__all__ = [
    "README_SECTIONS",
    "bpf_compiles_and_loads",
    "columns_are_given",
    "decoder_survives_random_bytes",
    "hooks_are_known",
    "imports_without_root",
    "keys_are_filled",
    "kinds_are_well_formed",
    "probes_are_data",
    "readme_has_sections",
    "readme_names_kinds",
    "records_match_c_layout",
    "rules_name_known_kinds",
    "span_attributes_are_plain",
]
