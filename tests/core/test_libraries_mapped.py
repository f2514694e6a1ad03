# SPDX-License-Identifier: Apache-2.0
"""Libraries of running processes: unlinked, replaced, in another mount namespace."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from tests.core.libraries_build import LOADER, build_library, call_17_times, compile_c, loading

from fencepath._bpf.attach import attach_uprobes, uprobe_attach_method
from fencepath._bpf.compiler import BpfObject
from fencepath._bpf.maps import Map
from fencepath._bpf.sys import ProgramType
from fencepath._libraries import (
    ElfImage,
    ImageCache,
    InstructionClass,
    MappedLibrary,
    cheapest_offset,
    executable_mappings,
    first_of_each,
    mapped_libraries,
    parse_maps,
)
from fencepath.errors import MachineError, UsageError

MAPS = """\
55d4a000-55d4b000 r--p 00000000 fe:01 131 /opt/a file
55d4b000-55d4c000 r-xp 00001000 fe:01 131 /opt/a file
7f000000-7f001000 r-xp 00002000 00:2b 77 /usr/lib/libcuda.so.1 (deleted)
7f001000-7f002000 rwxp 00000000 00:00 0
7f002000-7f003000 rwxp 00000000 00:05 12 /memfd:jit (deleted)
7f003000-7f004000 r-xp 00003000 fe:01 131 /opt/a file
7f004000-7f005000 r-xp 00003000 103:1a 99 /opt/new\\012line
7fff1000-7fff2000 r-xp 00000000 00:00 0 [vdso]
garbage
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("mapped")
    return compile_c(folder, "loader", LOADER, "-ldl"), build_library(folder)


def only(pid: int, name: str) -> MappedLibrary:
    (found,) = (library for library in mapped_libraries(pid) if library.name == name)
    return found


def test_maps_are_parsed() -> None:
    found = parse_maps(MAPS, 9)
    assert [(m.path_text, m.device, m.inode, m.offset, m.deleted) for m in found] == [
        ("/opt/a file", (0xFE, 1), 131, 0x1000, False),
        ("/usr/lib/libcuda.so.1", (0, 0x2B), 77, 0x2000, True),
        ("", (0, 0), 0, 0, False),
        ("/memfd:jit", (0, 5), 12, 0, True),
        ("/opt/a file", (0xFE, 1), 131, 0x3000, False),
        ("/opt/new\nline", (0x103, 0x1A), 99, 0x3000, False),
        ("[vdso]", (0, 0), 0, 0, False),
    ]
    assert [m.path_text for m in found if not m.is_file] == ["", "[vdso]"]
    assert [m.path_text for m in first_of_each(found)] == [
        "/opt/a file",
        "/usr/lib/libcuda.so.1",
        "/memfd:jit",
        "/opt/new\nline",
    ]
    assert found[0].open_path == "/proc/9/map_files/55d4b000-55d4c000"
    assert found[0].file_offset(0x55D4B010) == 0x1010
    with pytest.raises(ValueError, match="is not in"):
        found[0].file_offset(0x55D4C000)


def test_each_file_once() -> None:
    mine = mapped_libraries(os.getpid())
    assert len({library.identity for library in mine}) == len(mine)
    assert any(library.name.startswith("libc.so") for library in mine)
    assert len(mapped_libraries(os.getpid(), once=False)) >= len(mine)


def test_a_path_with_bytes_that_end_lines_elsewhere() -> None:
    """Only a newline ends a line of the file."""
    text = "10000-20000 r-xp 00000000 fe:01 9 /tmp/a\x0b\x1c\u2028\udcff.so\n"
    (found,) = parse_maps(text, 9)
    assert found.path_text == "/tmp/a\x0b\x1c\u2028\udcff.so"
    assert found.shown == "/tmp/a\x0b\x1c\u2028\\xff.so"


def test_memory_that_is_executable_is_there() -> None:
    named = {mapping.path_text: mapping for mapping in executable_mappings(os.getpid())}
    assert not named["[vdso]"].is_file
    assert not any(library.path_text == "[vdso]" for library in mapped_libraries(os.getpid()))


def test_dead_process_is_a_wrong_use() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(UsageError, match="no process"):
        mapped_libraries(process.pid)


@pytest.mark.bpf
def test_a_program_that_is_not_position_independent_is_opened(built: tuple[Path, Path], tmp_path: Path) -> None:
    """It lies at a low address, before which /proc/PID/maps puts zeros that /proc/PID/map_files does not have."""
    fixed = compile_c(tmp_path, "fixed", LOADER, "-ldl", "-no-pie", "-Wl,--build-id=sha1")
    with loading([str(fixed), str(built[1])]) as process:
        mapped = only(process.pid, "fixed")
        assert mapped.start < 1 << 28
        with ElfImage(mapped.open()) as image, ElfImage(fixed) as file:
            assert file.build_id
            assert image.build_id == file.build_id


@pytest.mark.bpf
def test_unlinked_and_replaced_library_is_opened_as_mapped(built: tuple[Path, Path], tmp_path: Path) -> None:
    loader, library = built
    copy = Path(shutil.copy(library, tmp_path / "libfp.so"))
    with ElfImage(library) as image:
        expected = image.build_id
    with loading([str(loader), str(copy)]) as process:
        copy.unlink()
        compile_c(tmp_path, "libfp.so", "int other;", "-shared", "-fPIC", "-Wl,--build-id=sha1")
        mapped = only(process.pid, "libfp.so")
        assert mapped.deleted
        with ElfImage(mapped.open()) as image, ElfImage(copy) as replaced:
            assert image.build_id == expected
            assert replaced.build_id != expected


@pytest.mark.bpf
def test_without_the_right_to_map_files_the_process_root_is_used() -> None:
    """In a child that gave root up: the kernel refuses map_files, and a file that was replaced must not be taken."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.write(writer, _open_as_nobody().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    libc = next(library for library in mapped_libraries(os.getpid()) if library.name.startswith("libc.so"))
    with ElfImage(libc.open()) as image:
        assert text == f"refused {image.build_id} is no longer the file"


def _open_as_nobody() -> str:
    nobody, set_dumpable = 65534, 4
    os.setgroups([])
    os.setuid(nobody)
    # A process that changed its user loses its /proc files to root.
    ctypes.CDLL(None).prctl(set_dumpable, 1, 0, 0, 0)
    libc = next(library for library in mapped_libraries(os.getpid()) if library.name.startswith("libc.so"))
    try:
        os.close(os.open(libc.open_path, os.O_RDONLY))
        direct = "open"
    except PermissionError:
        direct = "refused"
    with ElfImage(libc.open()) as image:
        build_id = image.build_id
    try:
        msgspec.structs.replace(libc, inode=libc.inode + 1).open()
    except MachineError as error:
        return f"{direct} {build_id} {'is no longer the file' if 'is no longer the file' in str(error) else error}"
    return "opened another file"


@pytest.mark.bpf
def test_library_in_another_mount_namespace_is_probed(built: tuple[Path, Path], tmp_path: Path) -> None:
    loader, library = built
    place = tmp_path / "elsewhere"
    place.mkdir()
    script = 'mount -t tmpfs none "$0" && cp "$1" "$0/libfp.so" && exec "$2" "$0/libfp.so"'
    with loading(["unshare", "-m", "sh", "-c", script, str(place), str(library), str(loader)]) as process:
        assert not (place / "libfp.so").exists()
        mapped = only(process.pid, "libfp.so")
        with ElfImage(mapped.open()) as image:
            symbol = image.find("begins_with_endbr")
            assert symbol is not None
            point = cheapest_offset(image, symbol)
        assert point.moved
        assert point.instruction is InstructionClass.EMULATED
        assert hits(mapped.open_path, point.offset, process) == 17


def hits(path: str, offset: int, process: subprocess.Popen[str]) -> int:
    """Probe one offset, let the process call 17 times, and return how often the probe was hit by it."""
    method = uprobe_attach_method()
    source = f"""
    int count(struct pt_regs *ctx) {{
        u32 first = 0;
        u64 *hits = bpf_map_lookup_elem((void *)bpf_pseudo_fd(1, HITS), &first);
        if (hits && bpf_get_current_pid_tgid() >> 32 == {process.pid})
            __sync_fetch_and_add(hits, 1);
        return 0;
    }}"""
    with Map.array("hits", 8, 1) as counter, BpfObject(source, defines={"HITS": counter.fd}) as program:
        fd = program.load("count", ProgramType.UPROBE, method.attach_type)
        with attach_uprobes(fd, path, [offset], [0], returning=False, method=method):
            call_17_times(process)
        return int.from_bytes(counter.lookup(bytes(4)) or b"", "little")


@pytest.mark.bpf
def test_cache_reads_equal_files_once(built: tuple[Path, Path], tmp_path: Path) -> None:
    loader, library = built
    copy = str(shutil.copy(library, tmp_path / "libcopy.so"))
    cache = ImageCache(limit=2)
    with loading([str(loader), str(library)]) as one, loading([str(loader), copy]) as two:
        first = cache.image(only(one.pid, "libfp.so"))
        assert cache.image(only(two.pid, "libcopy.so")) is first
        assert cache.identify(only(one.pid, "libfp.so")).build_id == first.build_id
        for name in ("loader", "libc.so.6"):
            cache.image(only(one.pid, name))
        assert len(cache) == 2
        assert cache.image(only(one.pid, "libfp.so")) is not first
    cache.close()
