"""What a policy remembers, as a log keeps it: not anew in every turn, but what has changed since the turn before.

Values are what JSON can hold. A change is None (nothing), {"is": value}, or, of an object, {"in": {key: change},
"gone": [key]}. So a policy that learns one thing about one of a thousand jobs adds one short line. The order of an
object's keys is not kept; that of a list is.
"""

import json
from typing import Any

from gpuloom.contract.policy import Policy
from gpuloom.errors import InputError


def recall(policy: Policy) -> object:
    """What it remembers, as JSON gives it back; None if nothing, or if it is of the kind that does not say."""
    remember = getattr(policy, "remember", None)
    memory = None if remember is None else remember()
    try:
        return None if memory is None else json.loads(json.dumps(memory))
    except (TypeError, ValueError) as error:
        name = type(policy).__name__
        raise InputError(f"policy {name}: remember returned what JSON cannot hold: {error}") from None


def difference(before: Any, after: Any) -> Any:
    """The change that leads from one to the other."""
    if isinstance(before, dict) and isinstance(after, dict):
        changes = dict[str, Any]()
        for key, value in after.items():
            change = difference(before[key], value) if key in before else {"is": value}
            if change is not None:
                changes[key] = change
        gone = [key for key in before if key not in after]
        return (({"in": changes} if changes else {}) | ({"gone": gone} if gone else {})) or None
    # As text: to Python 1, 1.0 and True are equal.
    return None if json.dumps(before) == json.dumps(after) else {"is": after}


def changed(before: Any, change: Any) -> Any:
    """What the change makes of it. ValueError, KeyError, TypeError or AttributeError if it is not a change of it."""
    if change is None:
        return before
    if "is" in change:
        return change["is"]
    gone = set(change.get("gone", ()))
    after = {key: value for key, value in before.items() if key not in gone}
    for key, inner in change.get("in", {}).items():
        after[key] = changed(after.get(key), inner)
    return after
