"""Every call that is made while the self-test runs: its name, arguments, code and microseconds.

`RecordedNvml` stands before pynvml, so what is written down is what gpuloom's own code does; a call is one of
nvidia-ml-py's functions, of which a few ask the library twice. Handles are told by their kind only: as numbers they
mean nothing elsewhere.
"""

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import isroutine
from typing import Any

from gpuloom.gpus.host.mps.daemon import Daemon, MpsError
from gpuloom.gpus.host.selftest.privacy import Pseudonyms

WHERE = frozenset({"busId", "busIdLegacy", "domain", "bus", "device"})
"""Fields that say in which slot of the machine a GPU is; and handles."""


@dataclass(frozen=True, slots=True)
class Call:
    call: str
    args: list[object]
    code: int
    """The library's; 0 is success. Of MPS's control tool: 1 if it refused."""
    us: int
    answer: object
    waiting: bool = False
    """Asked again later, as the answer was not yet what was waited for: how often says nothing."""


class Recorder:
    """What has been called since the last `take`."""

    def __init__(self, pseudonyms: Pseudonyms) -> None:
        self.pseudonyms = pseudonyms
        self._calls: list[Call] = []

    @property
    def count(self) -> int:
        return len(self._calls)

    def add(self, call: Call) -> None:
        self._calls.append(call)

    def will_repeat(self, since: int) -> None:
        """The calls from there on were not the last word."""
        self._calls[since:] = [replace(call, waiting=True) for call in self._calls[since:]]

    def take(self) -> list[Call]:
        calls, self._calls = self._calls, []
        return calls

    def plain(self, value: Any, field: str = "") -> object:
        """A value of ctypes or pynvml as JSON has it."""
        if field == "pid":
            return self.pseudonyms.pid(int(value))
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if isinstance(value, str):
            return self.pseudonyms.driver(value)
        if isinstance(value, ctypes._Pointer):
            return f"<{_kind(value)}>" if value else None
        if isinstance(value, ctypes.Array | list | tuple):
            return [self.plain(item) for item in value]
        if isinstance(value, ctypes.Structure):
            return self._fields({name: getattr(value, name) for name, *_ in value._fields_})
        if isinstance(value, ctypes._SimpleCData):
            return self.plain(value.value)
        if hasattr(value, "_obj"):  # what `byref` makes: the driver has written into what is behind it
            return self.plain(value._obj)
        return self._fields(vars(value))

    def _fields(self, fields: dict[str, Any]) -> dict[str, object]:
        return {name: self.plain(item, name) for name, item in fields.items() if name not in WHERE}


def _kind(pointer: Any) -> str:
    """`Device` of pynvml's type struct_c_nvmlDevice_t."""
    return str(pointer._type_.__name__).removeprefix("struct_c_nvml").removesuffix("_t")


class RecordedNvml:
    """pynvml, or a module with its functions, with each call written down."""

    def __init__(self, nvml: Any, recorder: Recorder) -> None:
        self._nvml, self._recorder = nvml, recorder

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._nvml, name)
        return self._recorded(name, found) if name.startswith("nvml") and isroutine(found) else found

    def _recorded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            begun_ns = time.perf_counter_ns()
            try:
                answer = function(*args, **options)
            except self._nvml.NVMLError as error:
                note(begun_ns, int(error.value), None, args, options)
                raise
            note(begun_ns, 0, answer, args, options)
            return answer

        def note(begun_ns: int, code: int, answer: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
            us, plain = (time.perf_counter_ns() - begun_ns) // 1000, self._recorder.plain
            self._recorder.add(
                Call(name, [plain(value) for value in (*args, *options.values())], code, us, plain(answer))
            )

        return call


@dataclass(frozen=True, slots=True)
class RecordedDaemon(Daemon):
    """An MPS daemon whose commands and answers are written down."""

    recorder: Recorder

    def ask(self, command: str, timeout_s: float = 10.0) -> str:
        begun_ns = time.perf_counter_ns()
        try:
            answer = Daemon.ask(self, command, timeout_s)
        except MpsError as error:
            self._note(begun_ns, command, 1, str(error))
            raise
        if command.startswith(("get_server_list", "get_client_list")):
            for word in filter(str.isdecimal, answer.split()):
                self.recorder.pseudonyms.pid(int(word))
        self._note(begun_ns, command, 0, answer)
        return answer

    def _note(self, begun_ns: int, command: str, code: int, answer: str) -> None:
        us, words = (time.perf_counter_ns() - begun_ns) // 1000, self.recorder.pseudonyms.words
        self.recorder.add(Call("mps", [words(command)], code, us, words(answer)))


def answer_or_code(nvml: Any, name: str, *args: object) -> tuple[Any, int]:
    """The answer to one question of any kind, or why there is none."""
    question = getattr(nvml, name, None)
    if question is None:  # an older nvidia-ml-py
        return None, int(nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    try:
        return question(*args), 0
    except nvml.NVMLError as error:
        return None, int(error.value)
