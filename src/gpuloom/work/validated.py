"""A document checked against a pydantic model: what is wrong becomes one sentence with the line and what is accepted.

Imported only when a file is read. Knows no format: which fields there are, the model says.
"""

from typing import TYPE_CHECKING, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from gpuloom.errors import InputError
from gpuloom.work.document import Document, Loc
from gpuloom.work.source import did_you_mean, shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)


def validated(document: Document, model: type[M]) -> M:
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    # A mistyped field first: it is also why a required one is missing.
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    raise InputError(_sentence(document, problems[0], model))


def _sentence(document: Document, problem: "ErrorDetails", model: type[BaseModel]) -> str:
    loc, kind = problem["loc"], problem["type"]
    context = problem.get("ctx", {})
    where = document.where(*loc)
    if kind in ("extra_forbidden", "invalid_key"):
        fields = _model_at(model, loc).model_fields.items()
        field, accepted = str(loc[-1]), [of.alias or name for name, of in fields]
        return f"{where} is not a known field{did_you_mean(field, accepted)}: accepted are {', '.join(accepted)}"
    if kind == "missing":
        return f"{where} is missing: expected a value for it"
    if kind == "value_error":
        return f"{where} {context['error']}"
    must = {
        "greater_than": f"a number above {context.get('gt')}",
        "greater_than_equal": f"{context.get('ge')} or more",
        "less_than_equal": f"{context.get('le')} or less",
        "literal_error": str(context.get("expected")),
        "enum": str(context.get("expected")),
        "too_short": f"a list of {context.get('min_length')} or more",
        "int_type": "a whole number",
        "float_type": "a number",
        "string_type": "a text (in quotes if a number)",
        "dict_type": "a mapping",
        "list_type": "a list (each item begins with '- ')",
        "model_type": "a mapping of fields such as 'name: train'",
    }
    return f"{where} is {shown(problem['input'])}, but must be {must.get(kind, problem['msg'])}"


def _model_at(model: type[BaseModel], loc: Loc) -> type[BaseModel]:
    """Of which a part of the document is a field."""
    for part in loc[:-1]:
        field = model.model_fields.get(str(part))
        model = (None if field is None else _model_in(field.annotation)) or model
    return model


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model in a type such as list[Entry] or Entry | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)
