"""A value of a spec in words."""

from __future__ import annotations

from lm.spec import Part


def value_in_words(value: object) -> str:
    """A value of a spec; a part by its kind and what it sets off its defaults: `ecoc (codebook random (bits 200))`."""
    match value:
        case None:
            return "none"
        case Part():
            fields = type(value).model_fields.items()
            values = [(name, field, getattr(value, name)) for name, field in fields if name != "kind"]
            sets = [
                f"{name} {value_in_words(v)}" for name, field, v in values if field.is_required() or v != field.default
            ]
            return f"{getattr(value, 'kind', '')} ({', '.join(sets)})".strip().removesuffix(" ()")
        case tuple():
            return f"[{', '.join(map(value_in_words, value))}]"
        case float():
            exact = str(value)
            return exact if len(exact) <= 9 else f"{value:.4g}"
        case _:
            return str(value)
