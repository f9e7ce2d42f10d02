#include "base/exact_totals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/parallel.h"

namespace polyleaf {
namespace {

__extension__ typedef __int128 Int128;

constexpr int64_t kRows = 4096;
// The unit is 2^-94 of the power of two above all terms: sums of 2^31 rows stay below 2^125.
constexpr int kBits = 94, kLowBits = 47;

// Terms of each row and column: weight * value, then weight. Where all weights are 1 the caller
// adds them without reading rows.
template <class T>
class Terms {
 public:
  Terms(const T* values, const TotalsInput& input) : values_(values), input_(input) {}

  int64_t n_columns() const { return 2 * input_.n_columns; }
  bool is_weighted() const { return input_.weight != nullptr; }
  bool is_one() const { return input_.n_columns == 1 && !is_weighted(); }
  double only(int64_t row) const { return static_cast<double>(values_[row]); }

  template <class Use>
  void each(int64_t row, const Use& use) const {
    const int64_t k = input_.n_columns;
    if (!is_weighted()) {
      for (int64_t j = 0; j < k; ++j) use(j, static_cast<double>(values_[row * k + j]));
      return;
    }
    for (int64_t j = 0; j < k; ++j) {
      const double w = input_.weight[input_.weight_columns == 1 ? row : row * k + j];
      use(j, w * static_cast<double>(values_[row * k + j]));
      use(k + j, w);
    }
  }

 private:
  const T* values_;
  const TotalsInput& input_;
};

double get_magnitude(double x) {
  return std::isfinite(x) ? std::fabs(x) : std::numeric_limits<double>::infinity();
}

// Return the largest magnitude of each column of terms; infinite if a term is not finite.
template <class T>
std::vector<double> largest_terms(const Terms<T>& terms, int64_t n_rows, const Context& context) {
  const int64_t k = terms.n_columns();
  std::vector<double> largest(static_cast<size_t>(context.n_threads * k), 0.0);
  parallel_for(context, Block::count(n_rows, kRows), [&](int64_t task, int thread) {
    double* own = largest.data() + thread * k;
    const Block block(n_rows, kRows, task);
    if (terms.is_one()) {  // the maximum stays in a register
      double best = own[0];
      for (int64_t i = block.begin; i < block.end; ++i)
        best = std::max(best, get_magnitude(terms.only(i)));
      own[0] = best;
      return;
    }
    for (int64_t i = block.begin; i < block.end; ++i)
      terms.each(i, [&](int64_t j, double x) { own[j] = std::max(own[j], get_magnitude(x)); });
  });
  for (int64_t i = k; i < static_cast<int64_t>(largest.size()); ++i)
    largest[i % k] = std::max(largest[i % k], largest[i]);
  largest.resize(k);
  if (!terms.is_weighted() && n_rows > 0) std::fill(largest.begin() + k / 2, largest.end(), 1.0);
  context.allreduce_max(largest);
  return largest;
}

// A term, or a sum of up to kRows terms, in 64 bits each: both halves have the sign of the term,
// and less than kLowBits bits of one.
struct Halves {
  int64_t high = 0, low = 0;

  void operator+=(const Halves& other) {
    high += other.high;
    low += other.low;
  }
  operator Int128() const { return static_cast<Int128>(high) * (Int128{1} << kLowBits) + low; }
};
static_assert(kBits == 2 * kLowBits && kRows << kLowBits < int64_t{1} << 62);

// Conversion of one column's terms to 128-bit integers.
struct Unit {
  explicit Unit(double largest) : is_finite(std::isfinite(largest)) {
    if (!is_finite) return;
    std::frexp(largest, &shift);
    shift = kBits - shift;
    // In two steps: 2^shift may overflow a double.
    first = std::ldexp(1.0, shift / 2);
    second = std::ldexp(1.0, shift - shift / 2);
  }

  // Return x * 2^shift without its fraction.
  Halves to_halves(double x) const {
    constexpr double kLow = static_cast<double>(int64_t{1} << kLowBits);
    const double scaled = x * first * second;
    const int64_t high = static_cast<int64_t>(scaled / kLow);
    return {high, static_cast<int64_t>(scaled - static_cast<double>(high) * kLow)};
  }
  double total(Int128 sum) const {
    return is_finite ? std::ldexp(static_cast<double>(sum), -shift)
                     : std::numeric_limits<double>::quiet_NaN();
  }

  bool is_finite;
  int shift = 0;
  double first = 0, second = 0;
};

// Sums of the rows of one thread.
template <class T>
class Sums {
 public:
  Sums(const Terms<T>& terms, const std::vector<Unit>& units, const TotalsInput& input)
      : terms_(terms), units_(units), input_(input) {}

  void add(const Block& block) {
    const int64_t k = terms_.n_columns();
    if (sums_.empty()) {
      sums_.assign(static_cast<size_t>(input_.n_groups * k), 0);
      rows_.assign(static_cast<size_t>(input_.n_groups), 0);
    }
    // Few sums: add the halves separately, and join them once per block.
    const bool joins_later = static_cast<int64_t>(sums_.size()) <= kRows;
    if (joins_later) block_.assign(sums_.size(), {});
    for (int64_t i = block.begin; i < block.end; ++i) {
      const int64_t group = input_.group == nullptr ? 0 : input_.group[i];
      ++rows_[group];
      terms_.each(i, [&](int64_t j, double x) {
        if (!units_[j].is_finite) return;
        const Halves term = units_[j].to_halves(x);
        if (joins_later)
          block_[group * k + j] += term;
        else
          sums_[group * k + j] += term;
      });
    }
    for (size_t j = 0; j < block_.size(); ++j) sums_[j] += block_[j];
  }

  void add_to(std::vector<Int128>& all) const {
    const int64_t k = terms_.n_columns();
    for (size_t i = 0; i < sums_.size(); ++i) all[i] += sums_[i];
    if (terms_.is_weighted()) return;
    for (size_t g = 0; g < rows_.size(); ++g)
      for (int64_t j = k / 2; j < k; ++j)  // weights, all 1
        if (units_[j].is_finite)
          all[static_cast<int64_t>(g) * k + j] += Int128{units_[j].to_halves(1.0)} * rows_[g];
  }

 private:
  const Terms<T>& terms_;
  const std::vector<Unit>& units_;
  const TotalsInput& input_;
  std::vector<Int128> sums_;   // [group][column]; empty: no rows yet
  std::vector<int64_t> rows_;  // per group
  std::vector<Halves> block_;
};

// Add the sums of all ranks: limbs of 32 bits, the highest with the sign, are added separately.
void allreduce_sums(std::vector<Int128>& sums, const Context& context) {
  if (!context.is_distributed()) return;
  std::vector<int64_t> limbs;
  for (const Int128 sum : sums)
    for (int i = 0; i < 4; ++i)
      limbs.push_back(i < 3 ? static_cast<int64_t>(static_cast<uint32_t>(sum >> (32 * i)))
                            : static_cast<int64_t>(sum >> 96));
  context.allreduce_sum(limbs);
  for (size_t s = 0; s < sums.size(); ++s) {
    sums[s] = 0;
    for (int i = 3; i >= 0; --i) sums[s] = sums[s] * (Int128{1} << 32) + limbs[4 * s + i];
  }
}

}  // namespace

template <class T>
void exact_totals(const T* values, const TotalsInput& input, double* totals,
                  const Context& context) {
  const Terms<T> terms(values, input);
  const int64_t k = terms.n_columns(), n = input.n_rows;
  std::vector<Unit> units;
  for (const double largest : largest_terms(terms, n, context)) units.emplace_back(largest);
  std::vector<Sums<T>> parts(context.n_threads, Sums<T>(terms, units, input));
  parallel_for(context, Block::count(n, kRows),
               [&](int64_t task, int thread) { parts[thread].add(Block(n, kRows, task)); });
  std::vector<Int128> all(static_cast<size_t>(input.n_groups * k), 0);
  for (const Sums<T>& part : parts) part.add_to(all);
  allreduce_sums(all, context);
  for (int64_t g = 0; g < input.n_groups; ++g)
    for (int64_t j = 0; j < k; ++j) {
      const int64_t part = j / input.n_columns, column = j % input.n_columns;
      totals[(part * input.n_groups + g) * input.n_columns + column] =
          units[j].total(all[g * k + j]);
    }
}

template void exact_totals(const float*, const TotalsInput&, double*, const Context&);
template void exact_totals(const double*, const TotalsInput&, double*, const Context&);

}  // namespace polyleaf
