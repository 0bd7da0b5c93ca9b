"""A dict that remembers which of its keys were read, so that a key DeepSpeed never looks at is seen."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

__all__ = ["Witness"]


class Witness(dict[str, Any]):
    """A config that reads like a plain dict and keeps the dotted path of every key that was asked for.

    Copies share the record: DeepSpeed copies the config before it reads it.
    """

    def __init__(self, config: dict[str, Any], prefix: str = "", seen: set[str] | None = None) -> None:
        self.prefix = prefix
        self.seen: set[str] = set() if seen is None else seen
        super().__init__(
            (key, Witness(value, f"{prefix}{key}.", self.seen) if isinstance(value, dict) else value)
            for key, value in config.items()
        )

    def _mark(self, key: object) -> None:
        if dict.__contains__(self, key):
            self.seen.add(f"{self.prefix}{key}")

    def __getitem__(self, key: str) -> Any:
        self._mark(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._mark(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._mark(key)
        return super().__contains__(key)

    def pop(self, key: str, *default: Any) -> Any:
        self._mark(key)
        return super().pop(key, *default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        self._mark(key)
        return super().setdefault(key, default)

    def __iter__(self) -> Iterator[str]:
        # Without this override `f(**config)` copies the dict in C and no read is seen.
        return super().__iter__()

    def _twin(self, items: dict[str, Any]) -> Witness:
        twin = Witness({}, self.prefix, self.seen)
        dict.update(twin, items)
        return twin

    def copy(self) -> Witness:
        return self._twin(dict(dict.items(self)))

    def __copy__(self) -> Witness:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Witness:
        return self._twin({key: copy.deepcopy(value, memo) for key, value in dict.items(self)})

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        # A config that is pickled (into a checkpoint, to another process) is a plain dict there.
        return dict, (dict(dict.items(self)),)


# DeepSpeed, torch and pydantic name the type of what they refuse: `dict`, as in a start without a witness.
Witness.__name__ = Witness.__qualname__ = "dict"
Witness.__module__ = "builtins"
