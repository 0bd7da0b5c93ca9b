"""The work of a forward and of its backward: matrix products, attention, bytes moved, and what the host dispatches.

A tape notes it beside the lifetimes where it is asked to (`WorkTape`). What is counted is what PyTorch dispatches in
eager mode. Every size has two numbers, as on a tape: what is there whatever the micro-batch is, and what a sequence of
it adds.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from dsgen.families.tape.graph import BACKWARD_PASS, COPY, FORWARD_PASS, MIXED, STREAM, Tensor
from dsgen.families.tape.moments import Size
from dsgen.families.tape.tape import Tape

__all__ = [
    "BACKWARD_PASS",
    "FORWARD_PASS",
    "NO_WORK",
    "Attention",
    "MemoryTraffic",
    "Product",
    "Work",
    "WorkTape",
    "summed",
]


class Product(NamedTuple):
    """A matrix product, or as many at once as `batch` says: (m, k) times (k, n).

    Attributes:
        m, n, k: Rows and columns of the result, and the dimension that is summed over.
        batch: Products of this shape that one kernel makes.
        item: Bytes of an element.
        groups: Matrices among which the rows of a grouped product are divided (experts): m of the forward and of the
            gradient of the input, k of the gradient of the weights; 1 for a plain one.
        apart: Each group is a kernel of its own.
    """

    m: Size
    n: Size
    k: Size
    batch: Size
    item: int
    groups: int = 1
    apart: bool = False


class Attention(NamedTuple):
    """A fused attention of one sequence.

    Attributes:
        phase: FORWARD_PASS or BACKWARD_PASS.
        heads, kv_heads: Heads of queries, and of keys and values.
        queries, keys: Tokens.
        head_size: Elements of a head.
        item: Bytes of an element.
        window: Tokens of the past that a token attends to, itself among them; 0 for all of them.
    """

    phase: str
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_size: int
    item: int
    window: int = 0


class MemoryTraffic(NamedTuple):
    """A kernel that is bound by memory: the bytes it reads, every input once, and writes.

    Attributes:
        sort: STREAM, NORM, SOFTMAX, EMBEDDING, COPY or DEQUANTIZATION of graph.py.
        moved: Bytes.
    """

    sort: str
    moved: Size


class Work(NamedTuple):
    """What a part of a model does in one pass, each kind with how often.

    Attributes:
        products: Matrix products.
        attentions: Fused attention; a call is one of all sequences.
        traffic: Kernels bound by memory.
        operators: Operators that the host dispatches and that are no views.
        views: Operators that make a view only, and launch nothing.
    """

    products: tuple[tuple[Product, int], ...]
    attentions: tuple[tuple[Attention, int], ...]
    traffic: tuple[tuple[MemoryTraffic, int], ...]
    operators: int
    views: int

    @property
    def kernels(self) -> int:
        """Kernels that the host launches; of an attention's backward the three of FlashAttention 2."""
        attentions = sum(count * (1 if one.phase == FORWARD_PASS else 3) for one, count in self.attentions)
        products = sum(count * (one.groups if one.apart else 1) for one, count in self.products)
        return attentions + products + sum(count for _, count in self.traffic)

    def moved(self, sort: str = "") -> Size:
        """Bytes that kernels bound by memory move, of one sort or of all."""
        chosen = [(one.moved, count) for one, count in self.traffic if sort in ("", one.sort)]
        return sum(count * moved[0] for moved, count in chosen), sum(count * moved[1] for moved, count in chosen)

    def within(self, window: int) -> "Work":
        """This with attention to a window."""
        attentions = tuple((one._replace(window=window), count) for one, count in self.attentions)
        return self._replace(attentions=attentions)

    def plus(self, other: "Work", times: int = 1) -> "Work":
        """This and another, so many times."""
        return Work(
            _joined(self.products, other.products, times),
            _joined(self.attentions, other.attentions, times),
            _joined(self.traffic, other.traffic, times),
            self.operators + times * other.operators,
            self.views + times * other.views,
        )


NO_WORK = Work((), (), (), 0, 0)


def _joined(one: tuple[tuple[object, int], ...], other: tuple[tuple[object, int], ...], times: int) -> tuple:  # type: ignore[type-arg]
    counts = Counter(dict(one))
    for kind, count in other:
        counts[kind] += times * count
    return tuple((kind, count) for kind, count in counts.items() if count)


class _Done(NamedTuple):
    """One thing that was done.

    Attributes:
        step: Steps of the tape by then.
        what: Its work; None of what launches nothing.
        operators, views: What the host dispatched for it.
    """

    step: int
    what: Product | Attention | MemoryTraffic | None
    operators: int = 1
    views: int = 0


def summed(done: Iterable[_Done]) -> Work:
    """Work of what was done."""
    counts: Counter[Product | Attention | MemoryTraffic] = Counter()
    operators = views = 0
    for one in done:
        operators += one.operators
        views += one.views
        if one.what is not None:
            counts[one.what] += 1
    return Work(
        tuple((one, count) for one, count in counts.items() if isinstance(one, Product)),
        tuple((one, count) for one, count in counts.items() if isinstance(one, Attention)),
        tuple((one, count) for one, count in counts.items() if isinstance(one, MemoryTraffic)),
        operators,
        views,
    )


_ELEMENTWISE = (STREAM, COPY)


def _mixed(tensors: tuple[Tensor | None, ...]) -> bool:
    """Whether an element-wise kernel casts or broadcasts; single numbers do not count."""
    several = [one for one in tensors if one is not None and (one.rows, one.width) != ((1, 0), 1)]
    return len({(one.item, one.rows, one.width) for one in several}) > 1


class WorkTape(Tape):
    """A tape that notes the work too; what was `done`, in order."""

    works = True

    def __init__(self, vocabulary: tuple[int, ...] = (), told: bool = False) -> None:
        super().__init__(vocabulary, told)
        self.done: list[_Done] = []

    def moves(self, sort: str, *tensors: Tensor | None, operators: int = 1) -> None:
        """As noted by `Tape`."""
        fixed = each = 0
        if sort in _ELEMENTWISE and _mixed(tensors):
            sort = MIXED
        for one in tensors:
            if one is not None:
                size = one.width * one.item
                fixed += one.rows[0] * size
                each += one.rows[1] * size
        self.done.append(_Done(len(self.steps), MemoryTraffic(sort, (fixed, each)), operators))

    def multiplies(
        self, m: Size, n: Size, k: Size, item: int, *, batch: Size = (1, 0), groups: int = 1, views: int = 0
    ) -> None:
        """As noted by `Tape`."""
        self.done.append(_Done(len(self.steps), Product(m, n, k, batch, item, groups), 1, views))

    def attends(self, phase: str, query: Tensor, key: Tensor, heads: int, kv_heads: int) -> None:
        """As noted by `Tape`."""
        size = query.width // heads
        what = Attention(phase, heads, kv_heads, query.rows[1], key.rows[1], size, query.item)
        self.done.append(_Done(len(self.steps), what))

    def dispatches(self, operators: int = 0, views: int = 0) -> None:
        """As noted by `Tape`."""
        self.done.append(_Done(len(self.steps), None, operators, views))
