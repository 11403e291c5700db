"""Windows and macOS, simulated: what only Linux has is taken away, or fails as it does elsewhere."""

import ast
import ctypes
import errno
import io
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch.distributed

from regard.cli import main, serve
from regard.errors import RunError, RunFormatError, RunLockedError, UnsupportedError, UsageError
from regard.files import check_files, replace_path, sync_folder, write_atomic
from regard.studies import costs, costs_measured
from regard.training import RunFolder, checkpoint, run
from regard.viewing import record_files
from tests.training.toy import train

PACKAGE = Path(run.__file__).parents[1]

# Modules that Windows does not have, with the files that have a fallback.
POSIX_MODULES = {"fcntl": {"training/run.py"}, "resource": {"studies/costs_measured.py"}, "grp": set(), "pwd": set()}
POSIX_NAMES = {
    "os": ("fork", "getuid", "geteuid", "killpg", "sched_getaffinity", "setsid", "statvfs", "uname", "wait"),
    "signal": ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "pause", "setitimer"),
    "select": ("epoll", "poll"),
    "loop": ("add_reader", "add_signal_handler"),
}


def calls_of(path: Path):
    return (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))


def test_modules_of_posix_are_imported_where_there_is_a_fallback_only():
    imports = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.value] if isinstance(node, ast.Constant) and node.value in POSIX_MODULES else []
            for name in set(names) & set(POSIX_MODULES):
                imports.setdefault(name, set()).add(path.relative_to(PACKAGE).as_posix())
    assert imports == {name: files for name, files in POSIX_MODULES.items() if files}


def test_no_function_that_windows_does_not_have_is_called():
    used = [
        f"{path.relative_to(PACKAGE)}: {node.value.id}.{node.attr}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.attr in POSIX_NAMES.get(node.value.id, ())
    ]
    assert used == []


def test_text_files_and_processes_name_their_encoding():
    """Without it, Windows writes and reads the code page of the user."""
    missing = []
    for path in PACKAGE.rglob("*.py"):
        for call in calls_of(path):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            keywords = {keyword.arg for keyword in call.keywords}
            is_text = name in ("read_text", "write_text") or (name == "run" and "text" in keywords)
            if name == "open" and isinstance(call.func, ast.Name):
                mode = call.args[1].value if len(call.args) > 1 and isinstance(call.args[1], ast.Constant) else "r"
                is_text = "b" not in mode
            if is_text and "encoding" not in keywords and len(call.args) < 4:
                missing.append(f"{path.relative_to(PACKAGE)}:{call.lineno} {name}")
    assert missing == []


class LockingOfWindows:
    """msvcrt.locking: a lock of a byte range, which another open file cannot lock as well."""

    LK_NBLCK = 2

    def __init__(self):
        self.owner = None

    def locking(self, descriptor, mode, count):
        assert (mode, count) == (self.LK_NBLCK, 1)
        if self.owner is not None:
            raise OSError(errno.EACCES, "Permission denied")
        self.owner = descriptor


def test_a_run_is_locked_without_fcntl(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "fcntl", None)
    monkeypatch.setattr(run, "msvcrt", LockingOfWindows(), raising=False)
    refused = pytest.raises(RunLockedError, match=r"another process is training in .*run; wait for it")
    with RunFolder(tmp_path / "run").lock(), refused, RunFolder(tmp_path / "run").lock():
        pass


def test_a_run_is_trained_where_files_cannot_be_locked(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "fcntl", None)
    monkeypatch.setattr(run, "msvcrt", None, raising=False)
    train(tmp_path / "run", steps=2)
    assert (tmp_path / "run" / "weights").is_dir()


def test_a_junction_in_a_run_is_refused(tmp_path, monkeypatch):
    """Windows reports a junction, which leads out of the folder, as a folder with a tag."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    lstat = Path.lstat

    def lstat_of_windows(path):
        tag = 0xA0000003 if path.name == "weights" else 0
        return SimpleNamespace(st_mode=lstat(path).st_mode, st_reparse_tag=tag)

    RunFolder.open(tmp_path)
    monkeypatch.setattr(Path, "lstat", lstat_of_windows)
    assert stat.S_ISDIR((tmp_path / "weights").lstat().st_mode)
    with pytest.raises(RunError, match="weights is a link or a device"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("name", ["C:\\key.txt", "C:key.txt", "\\key.txt", "..\\key.txt", "/key.txt", "../key.txt", ""])
def test_a_record_names_no_file_outside_of_its_folder_on_any_system(tmp_path, name):
    with pytest.raises(RunFormatError, match="names a file outside of its folder"):
        check_files(tmp_path, {name: "0" * 64}, RunFormatError, "copy it again")


def refuse_of_windows(number_of_times, calls):
    """os.replace while another program reads the file: Windows refuses that."""
    replace = os.replace

    def fail_at_first(source, target):
        calls.append(target)
        if len(calls) <= number_of_times:
            error = PermissionError(errno.EACCES, "The process cannot access the file", str(source))
            error.winerror = 32
            raise error
        replace(source, target)

    return fail_at_first


def test_a_file_that_is_being_read_is_replaced_a_little_later(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(os, "replace", refuse_of_windows(2, calls))
    write_atomic(tmp_path / "a.json", b"new")
    assert (tmp_path / "a.json").read_bytes() == b"new"
    assert len(calls) == 3


def test_a_file_that_stays_open_ends_in_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", refuse_of_windows(10**9, []))
    monkeypatch.setattr("regard.files.REPLACE_SECONDS", 0.05)
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(PermissionError):
        replace_path(tmp_path / "a", tmp_path / "b")


def test_a_denied_permission_of_another_system_is_not_tried_again(tmp_path, monkeypatch):
    def deny(source, target):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", deny)
    start = time.perf_counter()
    with pytest.raises(PermissionError):
        replace_path(tmp_path / "a", tmp_path / "b")
    assert time.perf_counter() - start < 0.1


def test_every_rename_waits_for_readers():
    """os.replace and os.rename are called in one place."""
    renaming = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for call in calls_of(path)
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func) in ("os.replace", "os.rename")
    ]
    assert renaming == ["files.py"]


def test_a_file_system_without_fsync_of_folders(tmp_path, monkeypatch):
    def refuse(descriptor):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    sync_folder(tmp_path)


def test_an_error_of_the_disk_is_still_one(tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        sync_folder(tmp_path)


def test_checkpoints_need_no_fine_clock(tmp_path, monkeypatch):
    """The clock of Windows ticks every 16 milliseconds."""
    monkeypatch.setattr(time, "monotonic_ns", lambda: 0)
    train(tmp_path / "run", steps=20)
    assert checkpoint.load_latest(tmp_path / "run" / "checkpoints").state["step"] == 20
    damaged = next(iter(checkpoint.list_steps(tmp_path / "run" / "checkpoints").values()))
    checkpoint._write_folder(damaged, {"a": b"1"})  # replaces a folder: two temporary folders at once
    assert [path.name for path in damaged.iterdir()] == ["a"]


def test_memory_of_a_c_library_without_names(monkeypatch):
    def load(name):
        raise TypeError("argument of type 'NoneType' is not iterable")  # CDLL(None) on Windows

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert record_files.trim_heap() == 0


def test_a_study_says_that_it_needs_the_memory_of_a_process(monkeypatch):
    monkeypatch.setattr(costs_measured, "STATUS", Path("/no/such/file"))
    monkeypatch.setitem(sys.modules, "resource", None)
    with pytest.raises(UnsupportedError, match="Linux and macOS"):
        costs_measured.peak_memory_mb()


def test_the_peak_memory_of_macos(monkeypatch):
    """It counts bytes, other systems kilobytes."""
    resource = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: SimpleNamespace(ru_maxrss=3 * 2**20))
    monkeypatch.setattr(costs_measured, "STATUS", Path("/no/such/file"))
    monkeypatch.setitem(sys.modules, "resource", resource)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert costs_measured.peak_memory_mb() == 3
    monkeypatch.setattr(sys, "platform", "freebsd14")
    assert costs_measured.peak_memory_mb() == 3 * 1024


def test_the_measured_process_ends_with_one_sentence(monkeypatch):
    answer = subprocess.CompletedProcess([], 1, "", "Traceback ...\nregard.errors.UnsupportedError: no memory here\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    with pytest.raises(Exception, match=r"failed: .*no memory here$"):
        costs.measure_costs("self-attention", [8])


def test_a_port_is_given_to_one_server_only():
    """On every system: on Windows SO_REUSEADDR would let two servers listen on one, so that Python does not set it."""
    listener = serve._listen("127.0.0.1", 0)
    with listener, pytest.raises(UsageError, match="is in use"):
        serve._listen("127.0.0.1", listener.getsockname()[1])


def call_on_windows(monkeypatch, *arguments, **environment):
    """The bytes that a command prints where files and pipes have the code page 1252."""
    output = io.TextIOWrapper(io.BytesIO(), "cp1252")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main(arguments)
    output.flush()
    return output.buffer.getvalue()


def test_redirected_output_is_utf8_on_windows(monkeypatch):
    assert "注意力" in call_on_windows(monkeypatch, "train", "--lang", "zh").decode("utf-8")


def test_the_user_can_choose_another_encoding_on_windows(monkeypatch):
    printed = call_on_windows(monkeypatch, "train", "--lang", "zh", PYTHONIOENCODING="cp1252").decode("cp1252")
    assert "???" in printed


def test_texts_are_not_expanded_as_file_names_on_windows(tmp_path, monkeypatch):
    """click does that for the arguments of the process: "What?" would become the file "What1"."""
    import typer.core

    (tmp_path / "What1").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(typer.core, "os", SimpleNamespace(**{**vars(os), "name": "nt"}))
    monkeypatch.setattr(sys, "argv", ["regard", "What?"])
    error = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(sys, "stderr", error)
    with pytest.raises(SystemExit):
        main()
    error.flush()
    assert "no command 'What?'" in error.buffer.getvalue().decode()


def test_training_without_torch_distributed(tmp_path, monkeypatch):
    """PyTorch may be built without it; then it has no `is_initialized`."""
    code = """
import sys, torch.distributed as dist
for name in [name for name in sys.modules if name.startswith("torch.distributed.")]:
    if name.endswith(("distributed_c10d", "rendezvous")):
        sys.modules[name] = None
dist.is_available = lambda: False
del dist.is_initialized, dist.barrier, dist.destroy_process_group
from regard.training import distributed
assert distributed.all_reduce_sum([1.0], None) == [1.0]
distributed.barrier()
distributed.destroy_process_group()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    monkeypatch.delattr(torch.distributed, "is_initialized")
    train(tmp_path / "run", steps=2)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    from regard.training.distributed import init_process_group

    with pytest.raises(UnsupportedError, match="several processes"):
        init_process_group(torch.device("cpu"))
