"""Lines as version 1 of the log had them: written nowhere any more, read for ever."""

from pydantic import TypeAdapter

from gpuloom.engine.log import Entry, Header


def old_line(entry: Entry) -> str:
    """An event, a decision or the header, all its fields in it, without a checksum."""
    name = type(entry).__name__
    if isinstance(entry, Header):
        text = TypeAdapter(Header).dump_json(entry, exclude={"cluster", "costs", "freezes"}).decode()
        return f'{{"{name}":{text[:-1]},"version":1}}}}\n'
    return f'{{"{name}":{TypeAdapter(type(entry)).dump_json(entry).decode()}}}\n'
