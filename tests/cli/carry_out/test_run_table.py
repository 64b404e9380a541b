"""`gpuloom run` on a real pseudo-terminal: the live table, plain lines, narrow screens, terminals that go away."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from select import select

import pytest

from gpuloom.cli.carry_out.run_lines import Words
from gpuloom.cli.carry_out.run_table import JobRow, Speed, jobs_part
from gpuloom.engine.events import GpuCut, Tick
from gpuloom.gpus.model import Instance
from tests.live.shop import PATIENCE_S, Shop, interrupt, until

UNCUT = "A100-40GB+resets"
LONG = "a-rather-long-name-of-one-training-job"
SGR = re.compile(r"\x1b\[[0-9;]*m")
REDRAWN = re.compile(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")
"""How the cursor goes back to the table's first line."""
COLOURED = re.compile(r"\x1b\[(?:\d+;)*[349]\d(?:;\d+)*m")


class Terminal:
    """A runner whose standard error is a terminal of this width; standard output stays a pipe, unless `both`."""

    def __init__(
        self, shop: Shop, columns: int, policy: str = "whole-fifo", both: bool = False, **environment: str
    ) -> None:
        self.master, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        plain = {name: value for name, value in shop.hardware.environment.items() if name not in ENVIRONMENT}
        self.runner = subprocess.Popen(
            shop.command_line(policy),
            env=plain | {"TERM": "xterm-256color"} | environment,
            stdin=subprocess.DEVNULL,
            stdout=end if both else subprocess.PIPE,
            stderr=end,
            text=True,
        )
        os.close(end)
        self.text = ""

    def read(self, wanted: str | None = None) -> str:
        """Until it has shown something, or until nobody writes to the terminal any more."""
        found = b""
        while wanted is None or wanted not in self.text:
            assert select([self.master], [], [], PATIENCE_S)[0], f"waited in vain for {wanted}: {self.text}"
            try:
                found = os.read(self.master, 1 << 16)
            except OSError:  # the other end is closed
                found = b""
            if not found:
                break
            self.text += found.decode(errors="replace")
        return self.text

    def finish(self, code: int = 0) -> str:
        self.read()
        out, _ = self.runner.communicate(timeout=PATIENCE_S)
        os.close(self.master)
        assert self.runner.returncode == code, out + self.text
        assert "Traceback" not in self.text, self.text
        json.loads(out)
        return self.text


ENVIRONMENT = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES", "TERM")
"""What would make a terminal another."""


def frames(text: str) -> list[list[str]]:
    """The pictures that were drawn one over the other, as lines."""
    shown = re.sub(r"\x1b\[\?25[lh]", "", SGR.sub("", text)).replace("\r\n", "\n")
    return [frame.split("\n") for frame in REDRAWN.split(shown) if frame.strip()]


def two_jobs(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job(LONG, "resnet 128", 200)
    shop.job("b", "bert 4", 100)


def test_the_table_shows_devices_jobs_and_events_and_stays(shop: Shop) -> None:
    two_jobs(shop)
    text = Terminal(shop, 140, "static:3,2,2").finish()
    drawn = frames(text)
    assert any(re.match(r"GPU 0  \|\S+\|  A100", line) for frame in drawn for line in frame)
    assert any(re.match(rf" {LONG} +running +3g\.20gb@\d of GPU 0 ", line) for frame in drawn for line in frame)
    last = "\n".join(drawn[-1])
    assert re.search(rf"^ {LONG} +completed +– +200 +– +\d+\.\d +\d+\.\d", last, re.MULTILINE)
    assert re.search(r"^ b +completed +– +100 ", last, re.MULTILINE)
    assert last.count("JobCompleted") == 2
    assert COLOURED.search(text)
    assert text.rstrip().endswith("\x1b[?25h")  # the cursor is there again
    shop.check_left_as_found()


@pytest.mark.parametrize("columns", [60, 80])
def test_a_narrow_terminal_breaks_no_number_and_no_name(shop: Shop, columns: int) -> None:
    two_jobs(shop)
    text = Terminal(shop, columns, "static:3,2,2", NO_COLOR="1").finish()
    drawn = frames(text)
    assert max(len(line) for frame in drawn for line in frame) <= columns
    assert not COLOURED.search(text)
    last = [line.rstrip() for line in drawn[-1]]
    at = last.index(LONG)
    assert last[at + 1] == "  completed"
    assert re.fullmatch(r"  200 steps, –/s, ran \d+\.\d s, waited \d+\.\d s", last[at + 2])


def test_plain_lines_are_as_they_were(shop: Shop) -> None:
    two_jobs(shop)
    shop.options = ["--plain"]
    text = Terminal(shop, 80).finish()
    assert "\x1b" not in text
    assert re.search(r"^gpuloom: +\d+\.\d s  JobStarted    b: it reports\r$", text, re.MULTILINE)


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(shop: Shop) -> None:
    two_jobs(shop)
    assert "\x1b" not in Terminal(shop, 80, TERM="dumb").finish()


def test_in_a_pipe_nothing_is_drawn(shop: Shop) -> None:
    two_jobs(shop)
    runner = shop.begin("whole-fifo")
    _, err = runner.communicate(timeout=PATIENCE_S)
    assert (runner.returncode, err) == (0, "")


def test_an_interrupt_is_told_in_the_table(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("a", steps=100_000)
    terminal = Terminal(shop, 100)
    until(lambda: len(shop.steps("a")) > 3, "it works")
    terminal.read("running")
    interrupt(terminal.runner)
    assert "stopping the jobs with a checkpoint" in terminal.finish(130)
    shop.check_left_as_found()


def test_a_terminal_that_goes_away_does_not_end_the_run(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.job("a", steps=600)
    shop.options = ["--report", str(shop.folder / "page.html")]
    terminal = Terminal(shop, 100)
    terminal.read("running")
    os.close(terminal.master)
    out, _ = terminal.runner.communicate(timeout=PATIENCE_S)
    assert (terminal.runner.returncode, json.loads(out)["jobs"][0]["state"]) == (0, "completed")
    assert (shop.folder / "page.html").exists()
    shop.check_left_as_found()


@pytest.mark.parametrize("output", ["json", "table", "csv"])
def test_a_terminal_that_hangs_up_interrupts_the_run(shop: Shop, output: str) -> None:
    """Nobody reads the answer any more: that is no error of the run."""
    shop.hardware.install(UNCUT)
    shop.job("a", steps=100_000)
    shop.options = ["--output", output, "--report", str(shop.folder / "page.html")]
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who runs the tests may ignore it, and a runner honours that
    terminal = Terminal(shop, 100, both=True)
    signal.signal(signal.SIGHUP, before)
    terminal.read("running")
    os.close(terminal.master)
    terminal.runner.send_signal(signal.SIGHUP)  # as the kernel does to whoever has it as its controlling terminal
    assert terminal.runner.wait(PATIENCE_S) == 130
    assert (shop.folder / "page.html").exists()
    shop.check_left_as_found()


def test_wrong_input_is_said_and_no_table_is_drawn(shop: Shop) -> None:
    shop.hardware.install(UNCUT)
    shop.command("wide", "true", gpus=2)
    terminal = Terminal(shop, 100)
    terminal.read()
    terminal.runner.communicate(timeout=PATIENCE_S)
    os.close(terminal.master)
    assert terminal.runner.returncode == 2
    assert "job wide (2 GPUs, 4096 MiB) fits nowhere" in terminal.text
    assert "\x1b[2K" not in terminal.text


# ---- without a terminal ----------------------------------------------------------------------------------------------


def test_lines_tell_real_seconds_and_call_a_device_what_it_is() -> None:
    cut = GpuCut(120.0, "cut", 1, (Instance(4, "3c"),))
    assert Words(5.0, "device").line_of(cut) == "     24.0 s  GpuCut        device 1 3c@4: cut"
    assert Words(1.0, "GPU").line_of(cut) == "    120.0 s  GpuCut        GPU 1 3c@4: cut"
    assert Words(5.0, "GPU").line_of(Tick(1.0, "tick")) is None


def test_a_speed_is_that_of_the_last_seconds() -> None:
    speed = Speed()
    assert speed.now(0.0) is None
    for at in range(11):
        speed.hear(at, float(at))
    for at in range(1, 6):
        speed.hear(10 + 2 * at, 10.0 + at)
    assert speed.now(15.5) == pytest.approx(2.0)
    speed.hear(3, 16.0)  # back at its checkpoint
    assert speed.now(16.0) is None


def test_more_jobs_than_there_is_room_for_are_counted() -> None:
    from rich.console import Console

    rows = [JobRow(f"job-{at}", "completed" if at else "running", steps=1_234_567) for at in range(30)]
    for width, kept in ((120, 9), (60, 3)):
        console = Console(width=width, no_color=True)
        with console.capture() as found:
            console.print(jobs_part(rows, width if width > 60 else 40, 9))
        assert f"and {30 - kept} more" in found.get()
        assert found.get().count("1,234,567") == kept
        assert found.get().index("running") < found.get().index("completed")
