# SPDX-License-Identifier: Apache-2.0
"""What a plugin would do on kernels of which only formats and symbols were saved."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from tests.core.planted import PROGRAM, RING, hooks, registry_of, written
from typer.testing import CliRunner

from fencepath._loader import load_plugins
from fencepath.cli.application import app
from fencepath.errors import UsageError
from fencepath.system import LiveSymbols, SavedSymbols, System
from fencepath.testing._matrix import Matrix, check_matrix, saved_kernels, shipped_kernels
from fencepath.tracepoints import bundle_name, read_bundle, write_bundle

SIGNAL = """name: signal_generate
ID: 100
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:int sig;	offset:8;	size:4;	signed:1;
	field:pid_t {pid};	offset:32;	size:4;	signed:1;

print fmt: "sig=%d", REC->sig
"""
SHIPPED = {system.kernel: system for system in saved_kernels(shipped_kernels())}


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """Three of them: one in full, one without the field, one with nothing of the group."""
    write_bundle(tmp_path / "1.formats", {"signal:signal_generate": SIGNAL.format(pid="pid")})
    write_bundle(tmp_path / "2.formats.gz", {"signal:signal_generate": SIGNAL.format(pid="target")})
    (tmp_path / "10/sched").mkdir(parents=True)
    (tmp_path / "10/sched/sched_switch.format").write_text("name: sched_switch\nID: 1\nformat:\n")
    return tmp_path


class TestBundles:
    @pytest.mark.parametrize("name", ["6.1.formats", "6.1.formats.gz"])
    def test_texts_survive(self, tmp_path: Path, name: str) -> None:
        texts = {"a:b": "name: b\nformat:\n\n\tfield:int x;\n", "a:c": "name: c\n"}
        write_bundle(tmp_path / name, texts, comment="made by hand")
        assert read_bundle(tmp_path / name) == texts
        assert bundle_name(tmp_path / name) == "6.1"
        before = (tmp_path / name).read_bytes()
        write_bundle(tmp_path / name, dict(reversed(texts.items())), comment="made by hand")
        assert (tmp_path / name).read_bytes() == before

    def test_a_bundle_is_as_good_as_a_folder(self, tmp_path: Path) -> None:
        folder = tmp_path / "6.1"
        (folder / "signal").mkdir(parents=True)
        (folder / "signal/signal_generate.format").write_text(SIGNAL.format(pid="pid"))
        write_bundle(tmp_path / "6.1.formats", {"signal:signal_generate": SIGNAL.format(pid="pid")})
        one, other = System.from_formats(folder), System.from_formats(tmp_path / "6.1.formats")
        assert one.kernel == other.kernel == "6.1"
        for source in (one.tracepoints, other.tracepoints):
            assert source.groups() == ("signal",)
            assert source.events("signal") == ("signal_generate",)
            assert source.events("sched") == ()
            assert source.format("signal", "signal_deliver") is None
        assert one.tracepoints.format("signal", "signal_generate") == other.tracepoints.format(
            "signal", "signal_generate"
        )

    @pytest.mark.parametrize("name", ["6.1.txt", "formats", "6.1.gz"])
    def test_other_names(self, name: str) -> None:
        assert bundle_name(Path(name)) == ""


class TestSymbols:
    TEXT = "# of a module\nffffffff81000000 T nvidia_isr\t[nvidia]\nU printk\ncuInit@@libcuda_1\n[nvidia] t os_lock\n\n"

    @pytest.mark.parametrize("name", ["symbols.txt", "symbols.txt.gz"])
    def test_lists(self, tmp_path: Path, name: str) -> None:
        data = self.TEXT.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        assert SavedSymbols(tmp_path / name).names == {"nvidia_isr", "printk", "cuInit", "os_lock"}
        system = System.from_formats(tmp_path)
        assert system.symbols.has("nvidia_isr")
        assert not system.symbols.has("nvidia")

    def test_beside_a_bundle(self, tmp_path: Path) -> None:
        write_bundle(tmp_path / "6.1.formats", {})
        (tmp_path / "6.1.symbols.txt").write_text(self.TEXT)
        assert System.from_formats(tmp_path / "6.1.formats").symbols.has("os_lock")

    def test_none_saved(self, tmp_path: Path) -> None:
        assert not System.from_formats(tmp_path).symbols.has("schedule")

    def test_of_this_kernel(self) -> None:
        """The kernel calls these two by the same names since long before 5.15."""
        symbols = LiveSymbols()
        assert symbols.has("schedule")
        assert symbols.has("kmalloc_order_trace") is False
        assert not LiveSymbols(Path("/nowhere")).has("schedule")


class TestMatrix:
    def matrix(self, kernels: Path, folder: Path, source: str = PROGRAM, *, load: bool = False) -> Matrix:
        registry = registry_of(hooks(alternatives=(written(folder, source),)))
        return check_matrix("planted", saved_kernels(kernels), load=load, registry=registry)

    def test_which_alternative_is_taken(self, kernels: Path, tmp_path: Path) -> None:
        matrix = self.matrix(kernels, tmp_path)
        assert (matrix.layer, matrix.kernels, matrix.probe_sets) == ("planted", ("1", "2", "10"), ("pings",))
        cells = {cell.kernel: cell for cell in matrix.cells}
        assert {kernel: cell.result for kernel, cell in cells.items()} == {
            "1": "full",
            "2": "missing",
            "10": "not_saved",
        }
        assert cells["1"].events == (f"{RING.group}:{RING.event}",)
        assert cells["1"].programs is None
        assert "no field pid" in cells["2"].lacks[0]

    @pytest.mark.bpf
    def test_programs_are_loaded(self, kernels: Path, tmp_path: Path) -> None:
        cells = self.matrix(kernels, tmp_path, load=True).cells
        assert [cell.programs for cell in cells] == [1, None, None]

    @pytest.mark.bpf
    def test_programs_that_do_not_compile(self, kernels: Path, tmp_path: Path) -> None:
        source = PROGRAM.replace("r->to", "r->nowhere")
        (refused, *_) = self.matrix(kernels, tmp_path, source, load=True).cells
        assert refused.result == "refused"
        assert "nowhere" in refused.lacks[0]

    def test_no_such_layer(self, kernels: Path) -> None:
        with pytest.raises(UsageError, match="no layer vulcan was loaded; there are"):
            check_matrix("vulcan", saved_kernels(kernels))

    def test_nothing_saved(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="nothing is saved in"):
            saved_kernels(tmp_path)
        with pytest.raises(UsageError, match="no folder"):
            saved_kernels(tmp_path / "none")


# The events by which jobs are known on each; the names changed in 6.17.
JOBS = {
    "6.1.0-57-amd64": "gpu_scheduler:drm_sched_job",
    "6.12.95+deb12-amd64": "gpu_scheduler:drm_sched_job",
    "6.17.13+deb13-amd64": "gpu_scheduler:drm_sched_job_queue",
    "7.3.4+deb13-amd64": "gpu_scheduler:drm_sched_job_queue",
}


class TestShipped:
    def test_there_are_kernels_of_both_generations(self) -> None:
        assert list(JOBS) == [kernel for kernel in SHIPPED if kernel in JOBS]

    @pytest.mark.parametrize("kernel", JOBS)
    def test_jobs_by_the_names_of_the_time(self, kernel: str) -> None:
        cell = check_matrix("drm", [SHIPPED[kernel]], load=False).cell("jobs", kernel)
        assert cell is not None
        # of one kernel the events of the thread scheduler were not saved
        waking = SHIPPED[kernel].tracepoints.format("sched", "sched_waking")
        assert (cell.result, cell.loses) == (
            ("full", "") if waking else ("less", "which signal woke a thread: told by nearness")
        )
        assert JOBS[kernel] in cell.events

    @pytest.mark.bpf
    @pytest.mark.parametrize("layer", sorted(load_plugins().plugins))
    def test_programs_of_our_layers_load_with_every_kernel_s_formats(self, layer: str) -> None:
        matrix = check_matrix(layer, SHIPPED.values(), load=True)
        assert [cell for cell in matrix.cells if cell.result == "refused"] == []
        assert all(cell.programs for cell in matrix.cells if cell.alternative)

    @pytest.mark.parametrize("layer", ["process", "mark"])
    def test_core_s_own_layers_are_possible_wherever_their_events_were_saved(self, layer: str) -> None:
        for cell in check_matrix(layer, SHIPPED.values(), load=False).cells:
            whole = set(SHIPPED[cell.kernel].tracepoints.groups()) >= {"sched", "task", "syscalls"}
            assert (cell.result in ("full", "less")) == whole, cell

    def test_symbols_of_a_driver(self) -> None:
        symbols = SHIPPED["nvidia-580.159.04"].symbols
        assert symbols.has("nvidia_isr")
        assert not symbols.has("schedule")


class TestCommandLine:
    def test_json(self) -> None:
        done = CliRunner().invoke(app, ["check-plugin", "drm", "--shipped", "--json"])
        assert done.exit_code == 0, done.output
        printed = msgspec.json.decode(done.stdout)
        assert printed["schema"] == "fencepath.matrix/1"
        assert printed["kernels"] == list(SHIPPED)
        assert {cell["kernel"] for cell in printed["cells"]} == set(SHIPPED)

    def test_text(self, kernels: Path) -> None:
        done = CliRunner().invoke(app, ["check-plugin", "mark", "--formats", str(kernels)], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines()[0].split() == ["probe", "set", "1", "2", "10"]
        assert done.stdout.splitlines()[1].split() == ["marks", *["not", "saved"] * 3]

    def test_one_bundle_is_checked_as_a_folder_of_formats_is(self, kernels: Path) -> None:
        done = CliRunner().invoke(app, ["check-plugin", "mark", "--formats", str(kernels / "1.formats"), "--json"])
        checks = {check["name"]: check for check in msgspec.json.decode(done.stdout)}
        assert checks["probe set marks"]["verdict"] == "degrade"

    @pytest.mark.bpf
    def test_saved_here_it_is_full(self, tmp_path: Path) -> None:
        saved = tmp_path / "here.formats.gz"
        assert CliRunner().invoke(app, ["check-plugin", "mark", "--save-formats", str(saved)]).exit_code == 0
        assert set(read_bundle(saved)) == {"syscalls:sys_enter_prctl"}
        done = CliRunner().invoke(app, ["check-plugin", "mark", "--formats", str(tmp_path), "--json"])
        (cell,) = msgspec.json.decode(done.stdout)["cells"]
        assert (cell["result"], cell["programs"]) == ("full", 1)

    @pytest.mark.parametrize("words", [("--shipped", "--formats", "x"), ("--shipped", "--save-formats", "x")])
    def test_wrong_use(self, words: tuple[str, ...]) -> None:
        assert isinstance(CliRunner().invoke(app, ["check-plugin", "mark", *words]).exception, UsageError)
