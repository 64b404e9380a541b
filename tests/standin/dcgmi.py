#!/usr/bin/env python3
"""A stand-in for `dcgmi`: the verbs `discovery -l` and `dmon`, with its words, its columns and its exit codes.

It talks to the stand-in for a host engine (`dcgm_engine.py`) over a real socket, so one that is absent, stopped or
killed looks from here as it would to the real client. Without one it refuses; it never starts one.
"""

import json
import socket
import sys
import time

GONE = -21
LOST = "Host engine connection invalid/disconnected"
WIDTHS = (10, 13)
NAMES = {1001: "GRACT", 1002: "SMACT", 1003: "SMOCC", 1005: "DRAMA"}


class Refused(Exception):  # noqa: N818
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Connection:
    def __init__(self, address: str) -> None:
        try:
            if address.startswith("unix://"):
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.connect(address.removeprefix("unix://"))
            else:
                host, _, port = address.partition(":")
                self.socket = socket.create_connection((host, int(port or 5555)))
        except OSError:
            print(f"Error: unable to establish a connection to the specified host: {address}")
            raise Refused(GONE, f"Error: Unable to connect to host engine. {LOST}.") from None
        self.lines = self.socket.makefile("r")

    def ask(self, **what: object) -> dict[str, list[float | None]]:
        """As long as it takes: an engine that hangs is waited for."""
        try:
            self.socket.sendall(f"{json.dumps(what)}\n".encode())
            line = self.lines.readline()
        except OSError:
            line = ""
        if not line:
            raise Refused(GONE, f"Error getting values information. Return {GONE}: {LOST}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["code"], answer["error"])
        return dict(answer)


def discovery(options: dict[str, str]) -> None:
    gpus = Connection(options["--host"]).ask(do="discovery")["gpus"]
    rule = f"+{'-' * 8}+{'-' * 70}+"
    print(f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'} found.")
    for line in (rule, f"| {'GPU ID':<6} | {'Device Information':<68} |", rule):
        print(line)
    for number, uuid in enumerate(gpus):
        about = ("Name: NVIDIA A100-SXM4-40GB", f"PCI Bus ID: 00000000:{number + 7:02X}:00.0", f"Device UUID: {uuid}")
        for at, text in enumerate(about):
            print(f"| {'' if at else number:<6} | {text:<68} |")
        print(rule)
    print("0 NvSwitches found.\n+-----------+\n| Switch ID |\n+-----------+\n+-----------+")


def dmon(options: dict[str, str]) -> None:
    connection = Connection(options["--host"])
    fields = [int(number) for number in options["-e"].split(",")]
    entity, count = options["-i"], int(options.get("-c", 0))
    connection.ask(do="find", entity=entity)
    header(fields)
    kind = connection.ask(do="watch")["entity"][0]
    printed = 0
    while True:
        values = connection.ask(do="latest")["values"]
        texts = ["N/A" if value is None else f"{value:.3f}" for value in values]
        print(f"{kind!s:<{WIDTHS[0]}}" + "".join(f"{text:<{WIDTHS[1]}}" for text in texts), flush=True)
        printed += 1
        if printed == count:
            return
        time.sleep(int(options["-d"]) / 1e3)
        if printed % 15 == 0:
            header(fields)


def header(fields: list[int]) -> None:
    print(f"{'#Entity':<{WIDTHS[0]}}" + "".join(f"{NAMES[number]:<{WIDTHS[1]}}" for number in fields))
    print(f"{'ID':<{WIDTHS[0]}}" + "".join(" " * WIDTHS[1] for _ in fields), flush=True)


def main(words: list[str]) -> int:
    verb, rest = words[0], words[1:]
    if verb == "discovery" and rest[:1] == ["-l"]:
        run, rest = discovery, rest[1:]
    elif verb == "dmon":
        run = dmon
    else:
        print("ERROR: Invalid subsystem.")
        return 255
    try:
        run({"--host": "localhost", "-d": "1000"} | dict(zip(rest[::2], rest[1::2], strict=True)))
    except Refused as reason:
        print(reason, flush=True)
        return reason.code % 256
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
