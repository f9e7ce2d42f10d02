#include "base/elementary_functions.h"

#include <array>
#include <cmath>
#include <limits>

namespace polyleaf {

namespace {

// An unevaluated sum of two numbers, the second at most half a unit in the last place of the
// first. Sums and products by Dekker, "A floating-point technique for extending the available
// precision", Numerische Mathematik 18, 1971.
struct Pair {
  double high, low;
};

constexpr Pair fast_two_sum(double a, double b) {  // |a| >= |b|, or a is 0
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

constexpr Pair two_sum(double a, double b) {
  const double sum = a + b, part = sum - a;
  return {sum, (a - (sum - part)) + (b - part)};
}

constexpr Pair two_product(double a, double b) {
  constexpr double kSplit = 134217729.0;  // 2^27 + 1
  const double a_scaled = kSplit * a, a_high = a_scaled - (a_scaled - a), a_low = a - a_high;
  const double b_scaled = kSplit * b, b_high = b_scaled - (b_scaled - b), b_low = b - b_high;
  const double product = a * b;
  return {product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

constexpr Pair operator+(Pair a, Pair b) {
  const Pair high = two_sum(a.high, b.high), low = two_sum(a.low, b.low);
  const Pair sum = fast_two_sum(high.high, high.low + low.high);
  return fast_two_sum(sum.high, sum.low + low.low);
}

constexpr Pair operator*(Pair a, Pair b) {
  const Pair product = two_product(a.high, b.high);
  return fast_two_sum(product.high, product.low + (a.high * b.low + a.low * b.high));
}

constexpr Pair operator/(Pair a, Pair b) {
  const double quotient = a.high / b.high;
  const Pair product = two_product(quotient, b.high);
  const double rest = ((a.high - product.high) - product.low) + a.low - quotient * b.low;
  const Pair first = fast_two_sum(quotient, rest / b.high);
  const Pair back = first * b, left = a + Pair{-back.high, -back.low};
  return first + Pair{left.high / b.high, 0.0};
}

// Evaluate sum_k coefficients[k] x^k; the terms from kExact on are too small to need pairs.
template <int kExact, std::size_t kTerms>
constexpr Pair evaluate(const std::array<Pair, kTerms>& coefficients, Pair x) {
  double tail = 0.0;
  for (std::size_t k = kTerms; k-- > kExact;) tail = tail * x.high + coefficients[k].high;
  Pair sum = {tail, 0.0};
  for (int k = kExact; k-- > 0;) sum = sum * x + coefficients[k];
  return sum;
}

// ln 2: the first part has 42 bits, so that its products with exponents are exact.
constexpr double kLog2 = 0x1.62e42fefa38p-1;
constexpr Pair kLog2Rest = {0x1.ef35793c7673p-45, 0x1.f97b57a079a19p-103};

// 1 / (2 k + 1): atanh(s) = s sum_k s^(2 k) / (2 k + 1).
constexpr auto kInverseOdd = [] {
  std::array<Pair, 24> found{};
  for (int k = 0; k < 24; ++k) found[k] = Pair{1.0, 0.0} / Pair{2.0 * k + 1.0, 0.0};
  return found;
}();

// 1 / (k + 1)!: e^r - 1 = r sum_k r^k / (k + 1)!.
constexpr auto kInverseFactorial = [] {
  std::array<Pair, 15> found{};
  Pair inverse = {1.0, 0.0};
  for (int k = 0; k < 15; ++k) found[k] = inverse = inverse / Pair{k + 1.0, 0.0};
  return found;
}();

// ln of a normalised pair above 0; the series has kExact terms as pairs.
template <int kExact>
Pair log_pair(Pair x) {
  constexpr double kSqrtHalf = 0.70710678118654752;
  int exponent;
  if (std::frexp(x.high, &exponent) < kSqrtHalf) --exponent;
  const Pair m = {std::ldexp(x.high, -exponent), std::ldexp(x.low, -exponent)};
  const Pair s = (Pair{m.high - 1.0, 0.0} + Pair{m.low, 0.0}) / (m + Pair{1.0, 0.0});
  const Pair series = s * evaluate<kExact>(kInverseOdd, s * s);
  const double e = exponent;
  const Pair sum = Pair{e * kLog2, 0.0} + kLog2Rest * Pair{e, 0.0};
  return sum + Pair{2.0 * series.high, 2.0 * series.low};
}

double rounded_log(Pair x) {
  const Pair quick = log_pair<3>(x);  // errors below 2^-68 of the value
  const double error = 0x1p-66 * quick.high;
  if (quick.high + (quick.low + error) == quick.high + (quick.low - error)) return quick.high;
  return log_pair<11>(x).high;
}

}  // namespace

double rounded_exp(double x) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  if (!(x > -746.0)) return x <= -746.0 ? 0.0 : x;
  if (x > 710.0) return std::numeric_limits<double>::infinity();
  const double n = (x * (1.0 / kLog2) + kRound) - kRound;
  const Pair part = kLog2Rest * Pair{-n, 0.0};
  const Pair r = Pair{x - n * kLog2, 0.0} + part;
  const Pair small = {r.high * 0.0625, r.low * 0.0625};
  Pair found = small * evaluate<8>(kInverseFactorial, small);  // e^(r / 16) - 1
  for (int i = 0; i < 4; ++i) found = Pair{2.0 * found.high, 2.0 * found.low} + found * found;
  return std::ldexp((Pair{1.0, 0.0} + found).high, static_cast<int>(n));
}

double rounded_log(double x) {
  if (!(x > 0.0)) return x == 0.0 ? -std::numeric_limits<double>::infinity() : std::nan("");
  return std::isfinite(x) ? rounded_log(Pair{x, 0.0}) : x;
}

double rounded_log1p(double x) {
  if (!(x > -1.0)) return x == -1.0 ? -std::numeric_limits<double>::infinity() : std::nan("");
  return std::isfinite(x) && x != 0.0 ? rounded_log(two_sum(1.0, x)) : x;
}

double digamma_excess(double x) {
  constexpr int kShift = 16;
  double shift = rounded_log1p(kShift / x);
  for (int i = 0; i < kShift; ++i) shift -= 1.0 / (x + i);
  const double far = x + kShift, i = 1.0 / (far * far);
  const double series =
      i * (1.0 / 12 - i * (1.0 / 120 - i * (1.0 / 252 - i * (1.0 / 240 - i / 132))));
  return shift - 0.5 / far - series;
}

}  // namespace polyleaf
