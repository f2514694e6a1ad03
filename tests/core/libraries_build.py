# SPDX-License-Identifier: Apache-2.0
"""Small ELF files built for the tests, and a process that maps one of them."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Generator
from pathlib import Path

LIBRARY = r"""
__asm__(".text\n"
        ".globl begins_with_push\n.type begins_with_push,@function\nbegins_with_push:\n push %rbp\n pop %rbp\n ret\n"
        ".size begins_with_push,.-begins_with_push\n"
        ".globl begins_with_endbr\n.type begins_with_endbr,@function\n"
        "begins_with_endbr:\n endbr64\n push %rbp\n pop %rbp\n ret\n"
        ".size begins_with_endbr,.-begins_with_endbr\n"
        ".globl endbr_then_sub\n.type endbr_then_sub,@function\n"
        "endbr_then_sub:\n endbr64\n sub $8,%rsp\n add $8,%rsp\n ret\n"
        ".size endbr_then_sub,.-endbr_then_sub\n"
        ".globl only_endbr\n.type only_endbr,@function\nonly_endbr:\n endbr64\n.size only_endbr,.-only_endbr\n"
        " push %rbp\n pop %rbp\n ret\n");
static int local_function(int x) { return x * 3; }
int (*keep)(int) = local_function;
int datum = 5;
static int one(void) { return 1; }
static int (*pick(void))(void) { return one; }
int chosen_at_load(void) __attribute__((ifunc("pick")));
int old_call(void) { return 1; }
int new_call(void) { return 2; }
__asm__(".symver old_call,call@FP_1");
__asm__(".symver new_call,call@@FP_2");
"""
VERSIONS = """
FP_1 { global: call; begins_with_push; begins_with_endbr; endbr_then_sub; only_endbr; chosen_at_load; datum; };
FP_2 { global: call; } FP_1;
"""

LOADER = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW);
    void (*call)(void) = library ? (void (*)(void))dlsym(library, "begins_with_endbr") : 0;
    puts(call ? "ready" : dlerror());
    fflush(stdout);
    while (getchar() == '\n') {
        for (int i = 0; i < 17; i++)
            call();
        puts("done");
        fflush(stdout);
    }
    return 0;
}
"""


def compile_c(folder: Path, name: str, source: str, *flags: str) -> Path:
    """Compile C text to ``folder/name``."""
    text = folder / f"{name}.c"
    text.write_text(source)
    subprocess.run(["gcc", "-O1", "-o", folder / name, text, *flags], check=True)
    return folder / name


def build_library(folder: Path, *flags: str) -> Path:
    """Build the library that has every kind of symbol."""
    script = folder / "versions"
    script.write_text(VERSIONS)
    return compile_c(
        folder,
        "libfp.so",
        LIBRARY,
        "-shared",
        "-fPIC",
        "-Wl,-soname,libfp.so.1",
        f"-Wl,--version-script={script}",
        "-Wl,--build-id=sha1",
        *flags,
    )


@contextlib.contextmanager
def loading(command: list[str]) -> Generator[subprocess.Popen[str], None, None]:
    """Start the loader, wait until it is ready, and end it afterwards."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        yield process
    finally:
        process.kill()
        process.communicate()


def call_17_times(process: subprocess.Popen[str]) -> None:
    """Let the loader call the library's function 17 times."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline().strip() == "done"
