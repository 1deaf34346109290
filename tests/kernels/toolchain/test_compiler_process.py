"""Compilers end with the process that started them, and so do those that they start themselves."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from optpy.errors import CompileError
from optpy.kernels.toolchain.compiler import compile_c
from optpy.kernels.toolchain.compiler_process import run_compiler
from tests.support.compilers import ADD, wait_for

pytestmark = pytest.mark.native

# nohup, and shells in the background, start what they run with signals ignored, and so would a child be.
COMPILING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
from optpy.kernels.toolchain.compiler import compile_c
try:
    compile_c("int add(int a, int b) { return a + b; }", name="add")
except KeyboardInterrupt:
    print("interrupted", flush=True)
    input()
"""


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that never comes to an end, and has a child; where they write down who they are."""
    log = tmp_path / "family"
    script = tmp_path / "cc"
    script.write_text(
        f"""#!/bin/sh
[ "$1" = --version ] && exec echo mine
sh -c 'echo $$ >> "{log}"; sleep 1000; true' &
echo $$ >> "{log}"
wait
"""
    )
    script.chmod(0o700)
    monkeypatch.setenv("OPTPY_CC", str(script))
    return log


def members(family: Path) -> list[int]:
    return [int(line) for line in family.read_text().split()] if family.exists() else []


def running(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def has_ended(family: Path) -> None:
    both = members(family)
    assert len(both) == 2
    wait_for(lambda: not any(map(running, both)))


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc who runs")


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_process_that_is_killed_leaves_no_compiler(number: signal.Signals, family: Path, root: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", COMPILING]) as process:
        wait_for(lambda: len(members(family)) == 2)
        process.send_signal(number)
    assert process.returncode == -number
    has_ended(family)


@needs_proc
def test_ctrl_c_ends_the_compiler_and_leaves_nothing(family: Path, root: Path) -> None:
    """From a real terminal, whose Ctrl-C goes to all of its foreground."""
    ours, theirs = pty.openpty()
    program = [sys.executable, "-c", "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n" + COMPILING]
    with subprocess.Popen(program, stdin=theirs, stdout=subprocess.PIPE, start_new_session=True, text=True) as process:
        wait_for(lambda: len(members(family)) == 2)
        os.write(ours, b"\x03")
        assert process.stdout is not None
        assert process.stdout.readline() == "interrupted\n"
        has_ended(family)  # while the process goes on
        assert not list(root.glob("tmp.*"))
        os.write(ours, b"\n")
    assert process.returncode == 0
    os.close(ours)
    os.close(theirs)


@needs_proc
def test_a_compiler_that_takes_too_long_is_ended(family: Path, tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_compiler([os.environ["OPTPY_CC"]], tmp_path, tmp_path, seconds=1.0)
    has_ended(family)


@needs_proc
def test_what_a_compiler_leaves_running_is_ended(family: Path, tmp_path: Path) -> None:
    quick = Path(os.environ["OPTPY_CC"])
    quick.write_text(quick.read_text().replace("&\n", ">/dev/null 2>&1 &\n").replace("\nwait\n", "\nexit 3\n"))
    assert run_compiler([str(quick)], tmp_path, tmp_path).returncode == 3
    wait_for(lambda: not any(map(running, members(family))))


CHILDLESS = """
import os
from optpy.kernels.toolchain.compiler import compile_c
assert not compile_c("int add(int a, int b) { return b + a; }", name="add").cache_hit
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child is left")
"""


def test_nothing_of_ours_is_left(root: Path) -> None:
    """Neither a process nor a thread nor an open file."""
    compile_c(ADD, name="add")
    before = (threading.active_count(), len(os.listdir("/dev/fd")))
    assert not compile_c(ADD, name="again").cache_hit
    assert (threading.active_count(), len(os.listdir("/dev/fd"))) == before
    # In a process of its own: this one may have children of other tests.
    alone = subprocess.run([sys.executable, "-c", CHILDLESS], capture_output=True, text=True, check=True)
    assert alone.stdout == "no child is left\n"


def test_intermediate_files_are_in_the_folder_and_go(tmp_path: Path) -> None:
    command = ["sh", "-c", 'echo "$TMPDIR" "$ZIG_LOCAL_CACHE_DIR"; touch "$TMPDIR/x"']
    said = run_compiler(command, tmp_path, tmp_path).stdout.split()
    assert [tmp_path in Path(path).parents for path in said] == [True, True]
    assert list(tmp_path.iterdir()) == []


def test_without_a_shell_compilers_run_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.defpath", str(tmp_path))
    assert run_compiler([sys.executable, "-c", "print(1)"], tmp_path, tmp_path).stdout == "1\n"


def test_a_compiler_that_is_gone_is_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "cc"
    script.write_text("#!/bin/sh\necho mine\n")
    script.chmod(0o700)
    monkeypatch.setenv("OPTPY_CC", str(script))
    with pytest.raises(CompileError, match="ended with status 0"):
        compile_c(ADD, name="add")
    script.unlink()
    with pytest.raises(CompileError, match=rf"the compiler {script} cannot be started: .*No such file"):
        compile_c(ADD, name="add")
    assert not list(root.glob("tmp.*"))
