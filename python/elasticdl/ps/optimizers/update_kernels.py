"""Compiled loops that move values: one fused pass for each optimizer.

Owns the order of sums and products, which is that of Keras's TensorFlow graph, so a
result differs from Keras's by the rounding of the scalars and by the graph's own
rewrites alone. Called by `ps/optimizers/rules.py` and `ps/optimizers/optimizer.py`;
must not know variables, layouts or steps. How loops are compiled:
`ps/optimizers/kernels.py`.

`rise` is `1 - rho` or `1 - beta`, rounded as Keras rounds it.
"""

from __future__ import annotations

import numpy as np

from elasticdl.ps.optimizers.kernels import Floats, Ids, compiled


@compiled
def sgd(values: Floats, grads: Floats, rate: np.float32) -> None:
    """`values -= grads * rate`."""
    for i in range(values.size):
        values[i] -= grads[i] * rate


@compiled
def sgd_rows(values: Floats, ids: Ids, rows: Floats, rate: np.float32) -> None:
    """`values[ids] -= rows * rate`, in the order of `ids`."""
    for k in range(ids.size):
        row = ids[k]
        for j in range(values.shape[1]):
            values[row, j] -= rows[k, j] * rate


@compiled
def momentum(
    values: Floats, grads: Floats, moments: Floats, rate: np.float32, keep: np.float32
) -> None:
    """`moments = moments * keep - grads * rate; values += moments`."""
    for i in range(values.size):
        moment = moments[i] * keep - grads[i] * rate
        moments[i] = moment
        values[i] += moment


@compiled
def nesterov(
    values: Floats, grads: Floats, moments: Floats, rate: np.float32, keep: np.float32
) -> None:
    """As `momentum`, but the values move one step of the new moment ahead."""
    for i in range(values.size):
        step = grads[i] * rate
        moment = moments[i] * keep - step
        moments[i] = moment
        values[i] += moment * keep - step


@compiled
def adam(  # noqa: PLR0913, PLR0917 - one fused pass over all buffers
    values: Floats,
    grads: Floats,
    m: Floats,
    v: Floats,
    alpha: np.float32,
    rise_1: np.float32,
    rise_2: np.float32,
    epsilon: np.float32,
) -> None:
    """Adam; `rise_k` is `1 - beta_k`, `alpha` the bias-corrected learning rate."""
    for i in range(values.size):
        grad = grads[i]
        first = m[i] + (grad - m[i]) * rise_1
        second = v[i] + (grad * grad - v[i]) * rise_2
        m[i] = first
        v[i] = second
        values[i] -= (first * alpha) / (np.sqrt(second) + epsilon)


@compiled
def amsgrad(  # noqa: PLR0913, PLR0917 - as `adam`
    values: Floats,
    grads: Floats,
    m: Floats,
    v: Floats,
    vhat: Floats,
    alpha: np.float32,
    rise_1: np.float32,
    rise_2: np.float32,
    epsilon: np.float32,
) -> None:
    """Adam with the largest `v` seen as divisor, instead of the plain update."""
    for i in range(values.size):
        grad = grads[i]
        first = m[i] + (grad - m[i]) * rise_1
        second = v[i] + (grad * grad - v[i]) * rise_2
        m[i] = first
        v[i] = second
        largest = max(vhat[i], second)
        vhat[i] = largest
        values[i] -= (first * alpha) / (np.sqrt(largest) + epsilon)


@compiled
def adagrad(
    values: Floats,
    grads: Floats,
    accumulator: Floats,
    rate: np.float32,
    epsilon: np.float32,
) -> None:
    """Adagrad; its divisor is `sqrt(accumulator + epsilon)`."""
    for i in range(values.size):
        grad = grads[i]
        total = accumulator[i] + grad * grad
        accumulator[i] = total
        values[i] -= (rate * grad) / np.sqrt(total + epsilon)


@compiled
def adagrad_rows(
    values: Floats,
    ids: Ids,
    rows: Floats,
    accumulator: Floats,
    rate: np.float32,
    epsilon: np.float32,
) -> None:
    """`adagrad` of the rows `ids` alone."""
    for k in range(ids.size):
        row = ids[k]
        for j in range(values.shape[1]):
            grad = rows[k, j]
            total = accumulator[row, j] + grad * grad
            accumulator[row, j] = total
            values[row, j] -= (rate * grad) / np.sqrt(total + epsilon)


@compiled
def rmsprop(  # noqa: PLR0913, PLR0917 - as `adam`
    values: Floats,
    grads: Floats,
    velocity: Floats,
    moments: Floats,
    average: Floats,
    rate: np.float32,
    rho: np.float32,
    rise: np.float32,
    keep: np.float32,
    epsilon: np.float32,
) -> None:
    """RMSprop; with an empty `moments` or `average` without momentum, not centered."""
    with_moments, centered = moments.size > 0, average.size > 0
    for i in range(values.size):
        grad = grads[i]
        second = rho * velocity[i] + rise * (grad * grad)
        velocity[i] = second
        if centered:
            first = rho * average[i] + rise * grad
            average[i] = first
            second -= first * first
        step = (rate * grad) / np.sqrt(second + epsilon)
        if with_moments:
            step += keep * moments[i]
            moments[i] = step
        values[i] -= step


@compiled
def adadelta(  # noqa: PLR0913, PLR0917 - as `adam`
    values: Floats,
    grads: Floats,
    squares: Floats,
    moves: Floats,
    rate: np.float32,
    rho: np.float32,
    rise: np.float32,
    epsilon: np.float32,
) -> None:
    """Adadelta; `squares` and `moves` are means of squared gradients and updates."""
    for i in range(values.size):
        grad = grads[i]
        square = rho * squares[i] + rise * (grad * grad)
        squares[i] = square
        move = -((np.sqrt(moves[i] + epsilon) * grad) / np.sqrt(square + epsilon))
        moves[i] = rho * moves[i] + rise * (move * move)
        values[i] += rate * move


@compiled
def adamax(  # noqa: PLR0913, PLR0917 - as `adam`
    values: Floats,
    grads: Floats,
    m: Floats,
    norm: Floats,
    rate: np.float32,
    rise_1: np.float32,
    beta_2: np.float32,
    correction: np.float32,
    epsilon: np.float32,
) -> None:
    """Adamax; `correction` is `1 - beta_1 ** step`."""
    for i in range(values.size):
        grad = grads[i]
        first = m[i] + (grad - m[i]) * rise_1
        largest = max(beta_2 * norm[i], abs(grad))
        m[i] = first
        norm[i] = largest
        values[i] -= (rate * first) / (correction * (largest + epsilon))


@compiled
def nadam(  # noqa: PLR0913, PLR0917 - as `adam`
    values: Floats,
    grads: Floats,
    m: Floats,
    v: Floats,
    rate: np.float32,
    rise_1: np.float32,
    rise_2: np.float32,
    share_m: np.float32,
    whole_m: np.float32,
    share_grad: np.float32,
    whole_grad: np.float32,
    correction: np.float32,
    epsilon: np.float32,
) -> None:
    """Nadam; the step is `m * share_m / whole_m + grad * share_grad / whole_grad`.

    `correction` is `1 - beta_2 ** step`.
    """
    for i in range(values.size):
        grad = grads[i]
        first = m[i] + (grad - m[i]) * rise_1
        second = v[i] + (grad * grad - v[i]) * rise_2
        m[i] = first
        v[i] = second
        ahead = (share_m * first) / whole_m + (share_grad * grad) / whole_grad
        values[i] -= (ahead * rate) / (np.sqrt(second / correction) + epsilon)


@compiled
def ftrl(  # noqa: PLR0913, PLR0917 - as `adam`
    values: Floats,
    grads: Floats,
    accumulator: Floats,
    linear: Floats,
    rate: np.float32,
    power: np.float32,
    l1: np.float32,
    l2_twice: np.float32,
    shrinkage_twice: np.float32,
) -> None:
    """Ftrl; `power` is `-learning_rate_power`. 0.5 has a fast path.

    As in Keras values come from `linear` alone: a value that never had a gradient
    becomes zero at the first update.
    """
    root = power == np.float32(0.5)
    for i in range(values.size):
        grad, value, before = grads[i], values[i], accumulator[i]
        total = before + grad * grad
        if root:
            high, low = np.sqrt(total), np.sqrt(before)
        else:
            high, low = total**power, before**power
        slope = linear[i] + (
            (grad + shrinkage_twice * value) - ((high - low) / rate) * value
        )
        accumulator[i] = total
        linear[i] = slope
        values[i] = (min(max(slope, -l1), l1) - slope) / (high / rate + l2_twice)


@compiled
def lion(  # noqa: PLR0913, PLR0917 - as `adam`
    values: Floats,
    grads: Floats,
    m: Floats,
    rate: np.float32,
    beta_1: np.float32,
    rise_1: np.float32,
    beta_2: np.float32,
    rise_2: np.float32,
) -> None:
    """Lion: a step of `rate` in the direction of the interpolated moment's sign."""
    for i in range(values.size):
        grad = grads[i]
        values[i] -= rate * np.sign(m[i] * beta_1 + grad * rise_1)
        m[i] = m[i] * beta_2 + grad * rise_2


@compiled
def nadam_product(beta_1: np.float32, updates: int) -> np.float32:
    """Return Nadam's product of momenta after this many updates (tends to 0.0).

    A function of the number of updates, so no PS has to keep it. Each factor comes in
    float32, as Keras multiplies it up.
    """
    one, half = np.float32(1), np.float32(0.5)
    product = one
    for step in range(1, updates + 1):
        power = np.float32(np.float64(np.float32(0.96)) ** step)
        product = product * beta_1 * (one - half * power)
        if product == 0:
            break
    return product


@compiled
def average(
    averages: Floats, values: Floats, keep: np.float32, rise: np.float32
) -> None:
    """`averages = keep * averages + rise * values`."""
    for i in range(values.size):
        averages[i] = keep * averages[i] + rise * values[i]


@compiled
def decay(values: Floats, weight_decay: np.float32, rate: np.float32) -> None:
    """Decoupled weight decay: `values -= values * weight_decay * rate`."""
    for i in range(values.size):
        values[i] -= values[i] * weight_decay * rate
