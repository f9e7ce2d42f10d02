"""Split search with the gain of linear leaves (GBDT-PL, Algorithm 2).

p is the number of regressors, d the maximum per leaf; C is the number of candidates.
"""

from dataclasses import dataclass

import numpy as np

import reference
from polyleaf.settings.parameters import LinearLeafParameters
from reference import (
    F32,
    LARGEST_INTEGER,
    LARGEST_SUM,
    MISSING,
    SMALLEST_DERIVATIVE,
    Split,
    select_rows,
)
from reference.split_candidates import gain_correction, penalise_gain

MIN_SPREAD = 2.0**-30  # regressor variance over second moment; below: constant
MIN_MOMENT_PIVOT = 2.0**-10  # pivot of a node's own regressor, whose moments are rounded
OUTPUT_LANES = 8  # lanes of score sums


@dataclass(frozen=True)
class LinearConfig:
    """Parameters of the split search with linear leaves."""

    fit: str = LinearLeafParameters.linear_fit  # or "full"
    max_regressors: int = LinearLeafParameters.linear_features
    linear_lambda: float = reference.GrowConfig.reg_lambda


@dataclass
class LinearNode:
    """State that a node passes to its children: its regressors, and its fitted slopes.

    In the half-additive fit, with one output, the parent's function is a regressor. With many
    outputs each has its own function; the coefficients stay 1, and the fitted part is subtracted
    through the gradients (the additive fit of section 4.2).
    """

    regressors: list  # features
    norm: float = 0.0  # sum of squares of its slopes (one output)
    fitted: np.ndarray | None = (
        None  # float32 (n_node,): its slopes' part of the fit; None: no slopes
    )
    g: np.ndarray | None = None  # float32 (n_node, K): gradients at the fitted part (many outputs)


@dataclass(frozen=True)
class Moments:
    """Integer channels of a node's rows and its p own regressors z; value = integer * step
    (float32).
    """

    kind: str  # "unit", "shared" or (p = 0) "diagonal"
    g: np.ndarray  # int64 (n_node, K)
    h: np.ndarray  # int64 (n_node, m), m = 1 or (diagonal) K; unit: ones
    hz: np.ndarray  # int64 (n_node, p)
    hzz: np.ndarray  # int64 (n_node, p (p + 1) / 2), lower triangle, row after row
    gz: np.ndarray  # int64 (n_node, p K), grouped by regressor
    steps: dict  # of "g" (K,), "h" (m,), "hz", "hzz", "gz"

    @property
    def gradients(self):
        return self.g

    @property
    def hessians(self):
        return self.h[:, :0] if self.kind == "unit" else self.h

    @property
    def gradient_steps(self):
        return self.steps["g"]

    @property
    def hessian_steps(self):
        return self.steps["h"]


def bounded_channel(values, largest, n_rows):
    """Return one channel and its step; `largest` (>= any |value|) becomes 32767, less in a large
    node.

    The sum over all rows then fits int32 for any values.
    """
    if not (largest >= SMALLEST_DERIVATIVE and np.isfinite(largest)):
        return np.zeros(len(values), np.int64), F32(0)
    inverse, step, shift = F32(LARGEST_INTEGER) / largest, largest / F32(LARGEST_INTEGER), 0
    while n_rows * (32768 >> shift) > LARGEST_SUM:
        shift += 1
    inverse, step = inverse * F32(2.0**-shift), step * F32(2.0**shift)
    return np.rint(values * inverse).astype(np.int64), step


@np.errstate(over="ignore", invalid="ignore", under="ignore")
def quantise_moments(g, h, z, kind):
    """Compute the `Moments` of a node's rows.

    g is float32 (n, K), h float32 (n, m), and z float32 (p, n) relative to the middle of its range.
    A product's channel is scaled by the product of its factors' largest magnitudes.
    """
    p, n_outputs = len(z), g.shape[1]
    channels, steps = {}, {}
    top = [np.max(np.abs(column)) for column in g.T], [np.max(column) for column in h.T]
    tops = [np.max(np.abs(column)) for column in z]
    hz = [h[:, 0] * z[i] for i in range(p)]
    columns = {
        "g": [(g[:, k], top[0][k]) for k in range(n_outputs)],
        "h": [(h[:, m], top[1][m]) for m in range(h.shape[1])],
        "hz": [(hz[i], top[1][0] * tops[i]) for i in range(p)],
        "hzz": [
            (hz[i] * z[j], (top[1][0] * tops[i]) * tops[j]) for i in range(p) for j in range(i + 1)
        ],
        "gz": [(g[:, k] * z[j], top[0][k] * tops[j]) for j in range(p) for k in range(n_outputs)],
    }
    for name, pairs in columns.items():
        both = [bounded_channel(values, largest, len(g)) for values, largest in pairs]
        channels[name] = np.array([q for q, _ in both], np.int64).reshape(len(pairs), len(g)).T
        steps[name] = np.array([step for _, step in both], F32)
    if kind == "unit":
        channels["h"], steps["h"] = np.ones((len(g), 1), np.int64), np.ones(1, F32)
    return Moments(kind, steps=steps, **channels)


def subtract_midrange(z):
    """Subtract the middle of its range from z, in float32."""
    return z - F32(0.5) * (z.min() + z.max())


@dataclass
class Sums:
    """Sums over one side of each of C candidates; float64, in the unit of the derivatives.

    `count` (C,), `G` (C, K), `H` (C, m), `HZ` (C, p), `HZZ` (C, p (p + 1) / 2), `GZ` (C, p K) are
    over all rows. `Gp`, `Hp`, `HZp` are over rows where the candidate's feature is present. `Gx`
    (C, K), `Hx`, `Hxx` (C, m), `HZx` (C, p) are sums of products with its bin means. m is 1, or K
    where p is 0 and the Hessian is diagonal.
    """

    count: np.ndarray
    G: np.ndarray
    H: np.ndarray
    HZ: np.ndarray
    HZZ: np.ndarray
    GZ: np.ndarray
    Gp: np.ndarray = None
    Hp: np.ndarray = None
    HZp: np.ndarray = None
    Gx: np.ndarray = None
    Hx: np.ndarray = None
    Hxx: np.ndarray = None
    HZx: np.ndarray = None


def over(x):
    """Return 1 / x, or 0 where x is not positive."""
    return np.where(x > 0, 1.0 / np.where(x > 0, x, 1.0), 0.0)


@dataclass
class Solution:
    """Score of one side, and the slopes that give it."""

    score: np.ndarray  # float64 (C, K): contribution of each output
    slope: np.ndarray  # float64 (C, K), of the candidate's feature
    middle: np.ndarray  # float64 (C, m): its mean
    slopes: np.ndarray  # float64 (C, p, K), of the node's own regressors


def linear_score(s, ridges, noise, reg_lambda, linear_lambda):
    """Return twice the loss decrease of a linear function on one side (GBDT-PL, eq. 7).

    Regressors are centred on the side. The order is: intercept, the candidate's feature (where `s`
    has it), the node's own regressors. A regressor that nearly depends on the preceding ones is
    left out. `noise` is the possible rounding error of their second moments, per row.
    """
    p, (n_candidates, n_outputs), m = s.HZ.shape[1], s.G.shape, s.H.shape[1]
    inverse = over(s.H)
    terms = (s.G * s.G) * over(s.H + reg_lambda)
    A = np.zeros((p + 1, p + 1, n_candidates, m))
    y = np.zeros((p + 1, n_candidates, n_outputs))
    least, kept = np.zeros((p + 1, n_candidates, 1)), np.zeros((p + 1, n_candidates, m))
    middle = np.zeros((n_candidates, m))
    if s.Hx is not None:
        middle = s.Hx * over(s.Hp)
        spread = s.Hxx - s.Hx * middle
        A[0, 0] = np.where(spread > MIN_SPREAD * s.Hxx, spread + linear_lambda, 0.0)
        for i in range(p):
            A[i + 1, 0] = s.HZx[:, [i]] - middle * s.HZp[:, [i]]
        y[0] = s.Gx - middle * s.Gp
    for i in range(p):
        for j in range(i + 1):
            second = s.HZZ[:, [i * (i + 1) // 2 + j]]
            A[i + 1, j + 1] = second - (s.HZ[:, [i]] * s.HZ[:, [j]]) * inverse
        A[i + 1, i + 1] = (A[i + 1, i + 1] + ridges[i]) + noise[i] * s.count[:, None]
        least[i + 1] = MIN_MOMENT_PIVOT * s.HZZ[:, [i * (i + 3) // 2]]
        gz = s.GZ[:, i * n_outputs : (i + 1) * n_outputs]
        y[i + 1] = gz - s.G * (s.HZ[:, [i]] * inverse)
    for j in range(p + 1):
        kept[j] = np.where(A[j, j] > least[j], over(A[j, j]), 0.0)
        terms = terms + (y[j] * y[j]) * kept[j]
        for i in range(j + 1, p + 1):
            factor = A[i, j] * kept[j]
            y[i] = y[i] - factor * y[j]
            for q in range(j + 1, i + 1):
                A[i, q] = A[i, q] - factor * A[q, j]
    w = np.zeros_like(y)
    for j in reversed(range(p + 1)):
        rest = y[j]
        for i in range(j + 1, p + 1):
            rest = rest - A[i, j] * w[i]
        w[j] = rest * kept[j]
    return Solution(terms, -w[0], middle, -np.moveaxis(w[1:], 0, 1))


def one_output_score(s, ridges, noise, reg_lambda, linear_lambda):
    """Return `linear_score` for one output and at most one regressor, in closed form: float64 (C,).

    Moments are brought to one denominator each, so that few divisions are left.
    """
    g, h, count = s.G[:, 0], s.H[:, 0], s.count
    zero, one = np.zeros(len(g)), np.ones(len(g))
    gx, hx, hxx, h_there, g_there = zero, zero, zero, zero, zero
    if s.Hx is not None:
        gx, hx, hxx, h_there, g_there = s.Gx[:, 0], s.Hx[:, 0], s.Hxx[:, 0], s.Hp[:, 0], s.Gp[:, 0]
    constant = (g * g) * over(h + reg_lambda)
    spread = h_there * hxx - hx * hx
    joins = spread > MIN_SPREAD * (hxx * h_there)
    v = np.where(joins, h_there * gx - hx * g_there, zero)
    a = np.where(joins, (spread + h_there * linear_lambda) * h_there, one)
    if s.HZ.shape[1] == 0:
        return constant + (v * v) * over(a)
    hz, hzz, gz = s.HZ[:, 0], s.HZZ[:, 0], s.GZ[:, 0]
    c = (
        np.where(joins, h_there * s.HZx[:, 0] - hx * s.HZp[:, 0], zero)
        if s.Hx is not None
        else zero
    )
    b = (h * hzz - hz * hz) + h * (ridges[0] + noise[0] * count)
    w, ch, q = h * gz - g * hz, c * h, a * h
    d, e = a * b - ch * c, a * w - ch * v
    kept = d > (MIN_MOMENT_PIVOT * hzz) * q
    d, e = np.where(kept, d, one), np.where(kept, e, zero)
    return constant + (((v * v) * h) * d + e * e) * over(q * d)


def sum_outputs(terms):
    """Sum over outputs (C, K): float64 (C,); lane j adds outputs j, j + 8, ..., then lanes are
    folded.
    """
    lanes = np.zeros((len(terms), OUTPUT_LANES))
    for start in range(0, terms.shape[1], OUTPUT_LANES):
        part = terms[:, start : start + OUTPUT_LANES]
        lanes[:, : part.shape[1]] = lanes[:, : part.shape[1]] + part
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]


class LinearSearch:
    """Split search with the gain of linear leaves (GBDT-PL, Algorithm 2), for `grow`."""

    def __init__(self, data, g, h, kind, table, config, linear, rows=None, multiplier=None):
        codes, self.n_bins, self.is_categorical = data
        self.codes = codes if rows is None else codes[:, rows]
        self.g = select_rows(g, rows, multiplier)
        self.h = (
            np.ones((len(self.g), 1), F32) if kind == "unit" else select_rows(h, rows, multiplier)
        )
        self.kind, self.table, self.config, self.linear = kind, table, config, linear
        self.n_outputs = self.g.shape[1]
        self.nodes = {0: (LinearNode([], g=self.g), np.arange(len(self.g)))}
        self.chance = reference.estimate_overfit(self.moments(0))
        self.chosen = {}  # node: (moments, the two sides' sums of the chosen split)

    # -- interface of `grow`

    def cover(self, positions, parent):
        """Return the cover from the channels of the split node."""
        moments = self.moments(0) if parent is None else self.chosen[parent][0]
        of = (
            np.arange(len(positions))
            if parent is None
            else np.searchsorted(self.nodes[parent][1], positions)
        )
        H = moments.h[of].sum(axis=0, keepdims=True).astype(F32) * moments.steps["h"]
        return float(reference.mean_hessian(H)[0])

    def find_split(self, i, positions, allowed):
        moments = self.moments(i)
        node, _ = self.nodes[i]
        ridges, noise = self.penalties(node, moments)
        whole = self.sums(moments, np.ones((1, len(positions)), bool))
        parent = linear_score(whole, ridges, noise, *self.lambdas()).score
        parent_sum = F32(sum_outputs(parent)[0])
        best, best_sum, penalised = None, -np.inf, -np.inf
        for f in allowed:
            candidates, sides = self.candidates(moments, node, f, positions)
            if len(candidates) == 0:
                continue
            solutions = [linear_score(s, ridges, noise, *self.lambdas()) for s in sides]
            sums = [sum_outputs(solution.score) for solution in solutions]
            if self.n_outputs == 1 and moments.hz.shape[1] <= 1 and not self.is_categorical[f]:
                sums = [one_output_score(s, ridges, noise, *self.lambdas()) for s in sides]
            scores = (sums[0] + sums[1]).astype(F32)
            for s in sides:
                enough = s.count >= max(1, self.config.min_child_samples)
                weight = sum_outputs(s.H) / s.H.shape[1]
                scores[
                    ~(enough & (weight >= np.float64(F32(self.config.min_child_weight))))
                ] = -np.inf
            scores[np.isnan(scores)] = -np.inf
            counts = np.bincount(self.codes[f, positions], minlength=256)
            correction = gain_correction(counts, self.is_categorical[f], self.chance, self.config)
            of_feature = penalise_gain(scores.max(), correction, parent_sum, self.config, f)
            if not of_feature > penalised:
                continue
            best_sum, c, penalised = scores.max(), int(scores.argmax()), of_feature
            gain = 0.5 * (float(best_sum) - float(parent_sum)) / self.n_outputs
            terms = solutions[0].score[c] + solutions[1].score[c]
            goes_left = reference.set_default_direction(candidates[c], counts)
            threshold = -1 if self.is_categorical[f] else int(candidates[c, :MISSING].sum()) - 1
            best = Split(
                int(f), threshold, goes_left, gain, (0.5 * (terms - parent[0])).astype(F32)
            )
            fitted = [
                (s.slope[c], s.middle[c], s.slopes[c])
                if sides[0].Hx is not None
                else (None, None, s.slopes[c])
                for s in solutions
            ]
            self.chosen[i] = moments, fitted
        admissible = best is not None and reference.is_worthwhile(
            best_sum, parent_sum, best.gain, self.config
        )
        return best if admissible else None

    def record_split(self, i, split, children):
        """Record the children's regressors, and in the half-additive fit their inherited slopes."""
        node, node_sum = self.nodes[i]
        regressors, f = node.regressors, split.feature
        may_join = split.threshold >= 0 and self.table.scale[f] > 0 and f not in regressors
        if may_join and len(regressors) < self.linear.max_regressors:
            regressors = [*regressors, f]
        for (slope, middle, slopes), (child, positions) in zip(
            self.chosen[i][1], children, strict=True
        ):
            of = np.searchsorted(node_sum, positions)
            new = LinearNode(regressors, g=node.g[of])
            if self.linear.fit == "half_additive" and self.n_outputs == 1:
                z = None if node.fitted is None else node.fitted[of]
                self.take_slopes(new, node.norm, z, slope, middle, slopes, f, positions)
            elif self.linear.fit == "half_additive" and slope is not None:
                new.g = self.renewed(new.g, slope, middle, f, positions)
            self.nodes[child] = new, positions

    # -- parts

    def lambdas(self):
        return np.float64(F32(self.config.reg_lambda)), np.float64(self.linear.linear_lambda)

    def take_slopes(self, new, norm, z, slope, middle, slopes, f, positions):
        """Set the child's function of one output: the scaled parent's plus the new slope."""
        old = 0.0 if z is None else slopes[0, 0]
        new_slope = 0.0 if slope is None else slope[0]
        new.norm = new_slope * new_slope + (old * old) * norm
        if not new.norm > 0:
            return
        line = (new_slope * self.table.means[f]).astype(F32)
        line[MISSING] = F32(0.0 if middle is None else new_slope * middle[0])
        new.fitted = (
            line[self.codes[f, positions]] if slope is not None else np.zeros(len(positions), F32)
        )
        if z is not None:
            new.fitted = F32(old) * z + new.fitted

    def renewed(self, g, slope, middle, f, positions):
        """Return gradients after adding each output's slope of the feature, around its mean."""
        codes = self.codes[f, positions]
        x = self.table.means[f][codes].astype(F32)[:, None] - middle.astype(F32)
        x[codes == MISSING] = 0
        slope = slope.astype(F32)
        return g + (self.h[positions] * x) * np.where(np.isfinite(slope), slope, F32(0))

    def own_regressors(self, node, positions):
        """Return float32 (p, n_node): z of the node's rows."""
        if self.linear.fit == "half_additive" and self.n_outputs > 1:
            return []
        if self.linear.fit == "half_additive":
            return [] if node.fitted is None else [subtract_midrange(node.fitted)]
        found = []
        for f in node.regressors:
            codes = self.codes[f, positions]
            x = self.table.means[f].astype(F32)[codes]
            middle = (
                F32(0.5) * (x[codes != MISSING].min() + x[codes != MISSING].max())
                if (codes != MISSING).any()
                else F32(0)
            )
            found.append(np.where(codes == MISSING, F32(0), x - middle))
        return found

    def moments(self, i):
        node, positions = self.nodes[i]
        z = np.array(self.own_regressors(node, positions), F32).reshape(-1, len(positions))
        return quantise_moments(node.g, self.h[positions], z, self.kind)

    def penalties(self, node, moments):
        """Return the ridge on each regressor, and the rounding of its second moment per row."""
        p = moments.hz.shape[1]
        weight = node.norm if self.linear.fit == "half_additive" else 1.0
        diagonal = [i * (i + 3) // 2 for i in range(p)]
        ridges = [np.float64(self.linear.linear_lambda) * weight] * p
        return ridges, [0.5 * np.float64(moments.steps["hzz"][d]) for d in diagonal]

    def may_regress(self, node, f):
        """Return whether the candidate's feature becomes a regressor of the children."""
        if self.is_categorical[f] or not self.table.scale[f] > 0:
            return False
        if self.linear.fit == "full" and f in node.regressors:
            return False  # already a regressor
        return f in node.regressors or len(node.regressors) < self.linear.max_regressors

    def candidates(self, moments, node, f, positions):
        """Return bool (C, 256), the codes that go left, and the `Sums` of both sides."""
        codes = self.codes[f, positions]
        if self.is_categorical[f]:
            counts = np.bincount(codes, minlength=256)
            channels = reference.histogram(codes, moments)
            candidates = reference.categorical_candidates(channels, moments, self.config)
        else:
            counts = np.bincount(codes, minlength=256)
            candidates = reference.numeric_candidates(counts, int(self.n_bins[f]))
        goes_left = candidates[:, codes]
        sides = [self.sums(moments, goes_left), self.sums(moments, ~goes_left)]
        if len(candidates) and self.may_regress(node, f):
            self.add_products(sides, moments, codes, candidates, self.table.means[f])
        return candidates, sides

    def sums(self, moments, of):
        """Return `Sums` over the rows that `of` (C, n_node) marks."""
        total = {
            name: (of.astype(np.int64) @ getattr(moments, name)).astype(np.float64)
            * moments.steps[name].astype(np.float64)
            for name in ("g", "h", "hz", "hzz", "gz")
        }
        return Sums(of.sum(axis=1), total["g"], total["h"], total["hz"], total["hzz"], total["gz"])

    def add_products(self, sides, moments, codes, candidates, x):
        """Add sums of products with the bin means.

        The left side has running sums, the right side the rest.
        """
        present = codes != MISSING
        last = candidates[:, :MISSING].sum(axis=1) - 1  # last bin that goes left
        for name, part, product in (
            ("Gx", "g", x),
            ("Hx", "h", x),
            ("Hxx", "h", x * x),
            ("HZx", "hz", x),
        ):
            channel = getattr(moments, part)
            by_code = np.zeros((256, channel.shape[1]), np.int64)
            np.add.at(by_code, codes[present], channel[present])
            running = np.cumsum(by_code.astype(np.float64) * product[:, None], axis=0)
            left, step = running[last], moments.steps[part].astype(np.float64)
            for side, total in zip(sides, (left, running[-1] - left), strict=True):
                setattr(side, name, total * step)
        goes_left = candidates[:, codes]
        for side, of in zip(sides, (goes_left & present, ~goes_left & present), strict=True):
            there = self.sums(moments, of)
            side.Gp, side.Hp, side.HZp = there.G, there.H, there.HZ
