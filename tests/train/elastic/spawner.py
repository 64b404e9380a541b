"""Imports PyTorch once and forks trainings: a test then waits some milliseconds for one instead of some seconds.

Reads a JSON object a line: {"do": "begin", "wish": {…}, "folder": "…", "env": {…}}, {"do": "compare", …}, {"do":
"wait"}.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from gpuloom.train.elastic.launch import import_what_workers_need
from tests.train.elastic import training


def main() -> None:
    import_what_workers_need()
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "wait":
            code = os.waitstatus_to_exitcode(os.waitpid(asked["pid"], 0)[1])
            answer: Any = {"code": code}
        else:
            answer = {"pid": _fork(asked)}
        print(json.dumps(answer), flush=True)


def _fork(asked: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    folder = Path(asked["folder"])
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, to in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(number, to)
    os.setsid()
    os.environ.update(asked.get("env", {}))
    code = 1
    try:
        wish = training.Wish(**asked["wish"])
        if asked["do"] == "begin":
            training.begin(wish, folder)
        else:
            (folder / "compared").write_text(json.dumps(training.compare(wish, folder)))
        code = 0
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
