"""Networks made narrower by one factor, as a dense network of a given cost is."""

from collections.abc import Callable, Sequence

from lzero.arguments import number
from lzero.errors import ArgumentError

STEPS = 1000  # factors are told apart to a thousandth, which is less than one unit of most layers


def scaled(widths: Sequence[int], factor: float, multiple: int = 1) -> tuple[int, ...]:
    """All widths times one factor, rounded, at least 1; those above it to multiples of `multiple`.

    >>> scaled((20, 50, 500), 0.34), scaled((640,), 0.34, multiple=16)
    ((7, 17, 170), (224,))
    """
    factor = number("factor", factor, above=0)

    def width(exact: float) -> int:
        return max(1, round(exact)) if exact <= multiple else multiple * round(exact / multiple)

    return tuple(width(each * factor) for each in widths)


def factor_for(share: float, cost: Callable[[float], float]) -> float:
    """The largest factor up to 1 with which a network costs at most a share of what it costs with 1.

    `cost` gives the cost for a factor and does not fall as it rises; for the MACs of LeNet-5 it is
    `lambda factor: measure(LeNet5(widths=scaled((20, 50, 500), factor)), x).macs.dense`.

    >>> factor_for(0.25, lambda factor: factor**2)
    0.5
    """
    share = number("share", share, above=0, most=1)
    limit, low, high = share * cost(1.0), 0, STEPS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cost(middle / STEPS) <= limit else (low, middle - 1)
    if not low:
        least = cost(1 / STEPS)
        raise ArgumentError.about("share", expected=f"at least {least / cost(1.0):.2%}, the narrowest", got=share)
    return low / STEPS
