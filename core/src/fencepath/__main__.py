# SPDX-License-Identifier: Apache-2.0
"""``python -m fencepath``."""

from fencepath.cli import main

if __name__ == "__main__":
    main()
