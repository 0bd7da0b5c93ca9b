"""Quick answers about fake tensors are those that torch's own fake mode gives."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.proof


def _alike(quick, own):
    import torch

    assert type(quick) is type(own)
    assert vars(quick).keys() == vars(own).keys()
    assert vars(quick) == vars(own)
    for fact in ("shape", "dtype", "device", "layout", "requires_grad"):
        assert getattr(quick, fact) == getattr(own, fact)
    assert quick.stride() == own.stride()
    assert quick.storage_offset() == own.storage_offset()
    assert quick.untyped_storage().nbytes() == own.untyped_storage().nbytes()
    assert torch._C._dispatch_key_set(quick) == torch._C._dispatch_key_set(own)


def _cases():
    """Operators with arguments; each makes a tensor, changes one, or cuts a view."""
    import torch

    aten, bf16 = torch.ops.aten, torch.bfloat16
    matrix = torch.empty(6, 8, dtype=bf16)
    return [
        (aten.mm.default, (matrix, torch.empty(8, 3, dtype=bf16)), {}),
        (aten.mul.Tensor, (matrix, 2.0), {}),
        (aten.mul.Tensor, (torch.empty(4, dtype=torch.long), 2), {}),
        (aten.mul.Tensor, (torch.empty(4, dtype=torch.long), 2.0), {}),
        (aten.add.Tensor, (matrix.t(), torch.empty(8, 1, dtype=torch.float32)), {}),
        (aten._to_copy.default, (matrix,), {"dtype": torch.float32}),
        (aten.empty.memory_format, ([3, 5],), {"dtype": bf16, "device": torch.device("cpu"), "pin_memory": False}),
        (aten.cat.default, ([matrix, matrix[:2]],), {}),
        (aten.copy_.default, (matrix, torch.empty(6, 8)), {}),
        (aten.native_layer_norm.default, (matrix, [8], None, None, 1e-5), {}),
        (aten.slice.Tensor, (matrix, 0, 2, 5), {}),
        (aten.view.default, (matrix, [48]), {}),
        (aten.view.dtype, (matrix, torch.uint8), {}),
        (aten._unsafe_view.default, (matrix, [2, 24]), {}),
        (aten.detach.default, (matrix,), {}),
        (aten.expand.default, (matrix[:1], [4, 8]), {}),
    ]  # fmt: skip


def test_a_quick_answer_is_like_torchs_own():
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from dsgen.engine.simulate import fakes as simulate_fakes

    with FakeTensorMode():
        fakes = simulate_fakes.Fakes()
        cases = _cases()
        for _ in range(2):  # the first time torch is asked
            for func, args, kwargs in cases:
                ask = fakes.view if func in simulate_fakes.VIEWS else fakes.answer
                quick, own = ask(func, args, kwargs), func(*args, **kwargs)
                given = [one.untyped_storage()._cdata for one in args if isinstance(one, torch.Tensor)]
                shares = func in simulate_fakes.VIEWS or func is torch.ops.aten.copy_.default
                for one, other in zip(_several(quick), _several(own), strict=True):
                    _alike(one, other)
                    assert (one.untyped_storage()._cdata in given) == shares


def _several(found):
    return found if isinstance(found, tuple) else (found,)


def test_a_known_answer_does_not_ask_torch_again():
    """What speed the answers give hangs on it; and one with values is always asked for."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from dsgen.engine.simulate import fakes as simulate_fakes

    with FakeTensorMode():
        fakes, asked = simulate_fakes.Fakes(), []
        matrix, constant = torch.empty(4, 4), torch.tensor(2.0)
        assert constant.constant is not None

        class Spy(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                asked.append(func)
                return func(*args, **(kwargs or {}))

        with Spy():
            for _ in range(3):
                fakes.answer(torch.ops.aten.mm.default, (matrix, matrix), {})
                fakes.answer(torch.ops.aten.neg.default, (constant,), {})

    assert asked.count(torch.ops.aten.mm.default) == 1
    assert asked.count(torch.ops.aten.neg.default) == 3


def test_a_wrong_shape_is_still_refused():
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from dsgen.engine.simulate import fakes as simulate_fakes

    with FakeTensorMode():
        fakes = simulate_fakes.Fakes()
        matrix = torch.empty(4, 4)
        assert tuple(fakes.answer(torch.ops.aten.mm.default, (matrix, matrix), {}).shape) == (4, 4)
        with pytest.raises(RuntimeError, match="invalid for input of size"):
            fakes.view(torch.ops.aten.view.default, (matrix, [3]), {})
        with pytest.raises(RuntimeError, match="reduction dim"):
            fakes.answer(torch.ops.aten.mm.default, (matrix, torch.empty(3, 3)), {})
