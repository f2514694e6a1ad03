# SPDX-License-Identifier: Apache-2.0
"""killer.py SEED MOMENTS FOLDER STEADY LIBRARY: starts programs and kills each, with SIGKILL, at a random moment.

Their STATUS files are FOLDER/0.status and so on, and are there already.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time


def main() -> None:
    """Run it."""
    seed, moments, folder, steady, library = sys.argv[1:]
    moment = random.Random(int(seed))
    for number in range(int(moments)):
        words = [steady, f"{folder}/{number}.status", library]
        with subprocess.Popen(words) as process:
            time.sleep(moment.uniform(0.0, 0.06))
            process.kill()


main()
