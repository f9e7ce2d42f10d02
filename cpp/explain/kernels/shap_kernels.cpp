// SHAP kernels (explainer.h). Rows are independent, and every sum of one row runs in one order, so
// all instruction sets give the same bits.
#include "explain/kernels/shap_kernels.h"

#include "base/kernels/lanes.h"

namespace polyleaf::POLYLEAF_ISA_NAMESPACE {
namespace {

#if defined(__AVX512BW__)
constexpr int kBytes = 64;
constexpr int kSums = 16;  // accumulators (16 floats each) that fit the registers
#elif defined(__AVX2__)
constexpr int kBytes = 32;
constexpr int kSums = 4;
#else
constexpr int kBytes = 16;
constexpr int kSums = 2;
#endif

typedef uint8_t Bytes __attribute__((vector_size(kBytes)));

void decide(const SplitOnCodes* splits, int32_t n_splits, const uint8_t* codes,
            uint8_t* decisions) {
  for (int32_t s = 0; s < n_splits; ++s, decisions += kTileRows) {
    const uint8_t* x = codes + static_cast<int64_t>(splits[s].feature) * kTileRows;
    if (splits[s].left != nullptr) {
      for (int r = 0; r < kTileRows; ++r) decisions[r] = splits[s].left[x[r]];
      continue;
    }
    const Bytes cut = Bytes{} + splits[s].cut, shift = Bytes{} + splits[s].shift;
    for (int r = 0; r < kTileRows; r += kBytes)
      store(decisions + r, (Bytes)(load<Bytes>(x + r) + shift <= cut));
  }
}

void hold(const SplitOnPath* tests, const int32_t* test_begin, int32_t n_features,
          const uint8_t* decisions, uint8_t* held) {
  for (int32_t j = 0; j < n_features; ++j, held += kTileRows)
    for (int r = 0; r < kTileRows; r += kBytes) {
      Bytes all = Bytes{} + uint8_t{255};
      for (int32_t i = test_begin[j]; i < test_begin[j + 1]; ++i)
        all &= load<Bytes>(decisions + static_cast<int64_t>(tests[i].split) * kTileRows + r) ^
               tests[i].right;
      store(held + r, all);
    }
}

// Encode patterns of up to eight features.
void encode_eight_features(const uint8_t* held, int32_t n_features, uint8_t* patterns) {
  for (int r = 0; r < kTileRows; r += kBytes) {
    Bytes number = Bytes{};
    for (int32_t j = 0; j < n_features; ++j) {
      const uint8_t bit = static_cast<uint8_t>(1 << j);
      number |= load<Bytes>(held + j * kTileRows + r) & bit;
    }
    store(patterns + r, number);
  }
}

void encode_patterns(const uint8_t* held, int32_t n_features, int32_t* patterns) {
  uint8_t numbers[kTileRows];
  encode_eight_features(held, n_features < 8 ? n_features : 8, numbers);
  for (int r = 0; r < kTileRows; ++r) patterns[r] = numbers[r];
  if (n_features <= 8) return;
  encode_eight_features(held + 8 * kTileRows, n_features - 8, numbers);
  for (int r = 0; r < kTileRows; ++r) patterns[r] |= numbers[r] << 8;
}

#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#define POLYLEAF_PERMUTES 1

// Return table[index] of a table with 16 * kVectors entries.
template <int kVectors>
POLYLEAF_INLINE f32x16 pick(const f32x16* table, const i32x16& index) {
  if constexpr (kVectors == 1) {
    return __builtin_shuffle(table[0], index);
  } else if constexpr (kVectors == 2) {
    return __builtin_shuffle(table[0], table[1], index);
  } else {
    constexpr int kHalf = kVectors / 2;
    return (index & 16 * kHalf) != 0 ? pick<kHalf>(table + kHalf, index)
                                     : pick<kHalf>(table, index);
  }
}

template <int kVectors>
void look_up_vectors(const float* table, int32_t n_terms, const int32_t* patterns, int n_rows,
                     float* coefficients) {
  for (int32_t term = 0; term < n_terms; ++term) {
    f32x16 entries[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) entries[v] = load<f32x16>(table + v * 16);
    for (int r = 0; r < n_rows; r += 16)
      store(coefficients + r, pick<kVectors>(entries, load<i32x16>(patterns + r)));
    table += kVectors * 16;
    coefficients += kTileRows;
  }
}
#endif

void look_up(const float* table, int32_t n_bits, int32_t n_terms, const int32_t* patterns,
             int n_rows, float* coefficients) {
#if defined(POLYLEAF_PERMUTES)
  if (n_bits <= 4) return look_up_vectors<1>(table, n_terms, patterns, n_rows, coefficients);
  if (n_bits == 5) return look_up_vectors<2>(table, n_terms, patterns, n_rows, coefficients);
  if (n_bits == 6) return look_up_vectors<4>(table, n_terms, patterns, n_rows, coefficients);
  if (n_bits == 7) return look_up_vectors<8>(table, n_terms, patterns, n_rows, coefficients);
  if (n_bits == 8) return look_up_vectors<16>(table, n_terms, patterns, n_rows, coefficients);
#endif
  const int64_t size = n_bits <= 4 ? kRowStep : int64_t{1} << n_bits;
  for (int32_t term = 0; term < n_terms; ++term)
    for (int r = 0; r < n_rows; ++r)
      coefficients[term * int64_t{kTileRows} + r] = table[term * size + patterns[r]];
}

// Scratch of `integrate` for eight rows, one vector per feature.
struct RowVectors {
  f64x8* held;  // 1 or 0
  f64x8 *factors, *before, *after;
  f64x8* sums;  // of the features, then of their pairs
};

// Add one quadrature point: a term gets the product of the factors of all other features.
template <bool kPairs>
POLYLEAF_INLINE void add_point(int32_t n, const double* unknown, double known, double weight,
                               const RowVectors& rows) {
  f64x8 product = broadcast(weight);
  for (int32_t j = 0; j < n; ++j) {
    const f64x8 factor = rows.held[j] * known + unknown[j];
    rows.before[j] = product;
    rows.factors[j] = factor;
    product = product * factor;
  }
  product = broadcast(1.0);
  for (int32_t j = n; j-- > 0;) {
    if constexpr (kPairs) rows.after[j] = product;
    rows.sums[j] += rows.before[j] * product;
    product = product * rows.factors[j];
  }
  if constexpr (!kPairs) return;
  f64x8* sum = rows.sums + n;
  for (int32_t i = 0; i < n; ++i) {
    product = rows.before[i];
    for (int32_t j = i + 1; j < n; ++j, ++sum) {
      *sum += product * rows.after[j];
      product = product * rows.factors[j];
    }
  }
}

typedef int8_t i8x8 __attribute__((vector_size(8)));

template <bool kPairs>
void integrate_rows(const PathProduct& product, const double* unknown, const uint8_t* held,
                    int64_t held_step, const RowVectors& rows, float* coefficients, int64_t step) {
  const int32_t n = product.n_features, n_terms = kPairs ? n * (n + 1) / 2 : n;
  for (int32_t j = 0; j < n; ++j)
    rows.held[j] = to_double(convert<i32x8>(load<i8x8>(held + j * held_step) & int8_t{1}));
  for (int32_t t = 0; t < n_terms; ++t) rows.sums[t] = f64x8{};
  for (int32_t q = 0; q < product.n_points; ++q)
    add_point<kPairs>(n, unknown + q * n, product.at[q], product.weight[q], rows);
  // Change of a feature's own factor when it becomes known.
  for (int32_t j = 0; j < n; ++j) rows.factors[j] = rows.held[j] - product.shares[j];
  for (int32_t j = 0; j < n; ++j)
    store_floats(coefficients + j * step, rows.sums[j] * rows.factors[j]);
  if constexpr (!kPairs) return;
  int32_t term = n;
  for (int32_t i = 0; i < n; ++i)
    for (int32_t j = i + 1; j < n; ++j, ++term)
      store_floats(coefficients + term * step,
                   (rows.sums[term] * rows.factors[i]) * rows.factors[j]);
}

void integrate(const PathProduct& product, const uint8_t* held, int64_t held_step, int n_rows,
               float* coefficients, int64_t coefficient_step, double* scratch) {
  const int32_t n = product.n_features;
  // Factor of a feature that is unknown; if it is known and satisfied, the quadrature point is
  // added.
  double* unknown = scratch;
  for (int32_t q = 0; q < product.n_points; ++q)
    for (int32_t j = 0; j < n; ++j) unknown[q * n + j] = (1.0 - product.at[q]) * product.shares[j];
  f64x8* vectors = reinterpret_cast<f64x8*>(scratch + integration_factors(n, product.n_points));
  const RowVectors rows{vectors, vectors + n, vectors + 2 * n, vectors + 3 * n, vectors + 4 * n};
  for (int r = 0; r < n_rows; r += 8)
    if (product.pairs)
      integrate_rows<true>(product, unknown, held + r, held_step, rows, coefficients + r,
                           coefficient_step);
    else
      integrate_rows<false>(product, unknown, held + r, held_step, rows, coefficients + r,
                            coefficient_step);
}

// Add kOutputs outputs of kBlocks * 16 rows.
template <int kOutputs, int kBlocks>
POLYLEAF_INLINE void add_block(const LeafValueTerm* terms, int32_t n_terms,
                               const float* coefficients, const float* leaf_value, int64_t stride,
                               float* tile) {
  f32x16 sums[kOutputs][kBlocks];
#pragma GCC unroll 16
  for (int k = 0; k < kOutputs; ++k)
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) sums[k][b] = f32x16{};
  for (int32_t t = 0; t < n_terms; ++t) {
    const float* from = coefficients + static_cast<int64_t>(terms[t].coefficients) * kTileRows;
    const float* value = leaf_value + terms[t].leaf_value * stride;
    f32x16 coefficient[kBlocks];
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) coefficient[b] = load<f32x16>(from + b * kLanes);
#pragma GCC unroll 16
    for (int k = 0; k < kOutputs; ++k)
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) sums[k][b] += coefficient[b] * value[k];
  }
#pragma GCC unroll 16
  for (int k = 0; k < kOutputs; ++k)
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      float* to = tile + k * kTileRows + b * kLanes;
      store(to, load<f32x16>(to) + sums[k][b]);
    }
}

// Add kOutputs outputs of all rows. With few outputs, several row blocks keep enough sums in
// flight.
template <int kOutputs>
void add_outputs(const LeafValueTerm* terms, int32_t n_terms, const float* coefficients,
                 const float* leaf_value, int64_t stride, int n_rows, float* tile) {
  int r = 0;
  if constexpr (kSums / kOutputs >= 4)
    for (; r + 64 <= n_rows; r += 64)
      add_block<kOutputs, 4>(terms, n_terms, coefficients + r, leaf_value, stride, tile + r);
  if constexpr (kSums / kOutputs >= 2)
    for (; r + 32 <= n_rows; r += 32)
      add_block<kOutputs, 2>(terms, n_terms, coefficients + r, leaf_value, stride, tile + r);
  for (; r < n_rows; r += 16)
    add_block<kOutputs, 1>(terms, n_terms, coefficients + r, leaf_value, stride, tile + r);
}

void add_terms(const LeafValueTerm* terms, int32_t n_terms, const float* coefficients,
               const float* leaf_value, int64_t stride, int32_t n_outputs, int n_rows,
               float* tile) {
  int32_t k = 0;
  const auto add = [&](auto* outputs) {
    outputs(terms, n_terms, coefficients, leaf_value + k, stride, n_rows,
            tile + int64_t{k} * kTileRows);
  };
  for (; kSums >= 16 && k + 16 <= n_outputs; k += 16) add(add_outputs < kSums >= 16 ? 16 : 1 >);
  for (; kSums >= 8 && k + 8 <= n_outputs; k += 8) add(add_outputs < kSums >= 8 ? 8 : 1 >);
  for (; kSums >= 4 && k + 4 <= n_outputs; k += 4) add(add_outputs < kSums >= 4 ? 4 : 1 >);
  for (; k + 2 <= n_outputs; k += 2) add(add_outputs<2>);
  for (; k < n_outputs; ++k) add(add_outputs<1>);
}

void add_entries(const float* coefficients, const int32_t* outputs, const float* values,
                 int32_t n_entries, int n_rows, float* tile) {
  for (int32_t e = 0; e < n_entries; ++e) {
    float* to = tile + int64_t{outputs[e]} * kTileRows;
    for (int r = 0; r < n_rows; r += kLanes)
      store(to + r, load<f32x16>(to + r) + load<f32x16>(coefficients + r) * values[e]);
  }
}

void shift(const float* x, float centre, const uint8_t* held, int n_rows, float* shifts) {
  constexpr float kLargest = 3.40282347e+38f;  // of the finite ones
  for (int r = 0; r < n_rows; ++r) {
    float distance = x[r] - centre;
    distance = distance > kLargest ? kLargest : distance;
    distance = distance < -kLargest ? -kLargest : distance;
    shifts[r] = held[r] != 0 && distance == distance ? distance : 0.0f;
  }
}

void scale(const float* shifts, int32_t n_terms, int n_rows, float* coefficients) {
  for (int32_t t = 0; t < n_terms; ++t, coefficients += kTileRows)
    for (int r = 0; r < n_rows; ++r) coefficients[r] *= shifts[r];
}

bool find_clipped(const LeafSlopes& leaf, const float* shifts, int n_rows, uint8_t* clipped) {
  uint8_t any = 0;
  for (int32_t k = 0; k < leaf.n_outputs; ++k, clipped += kTileRows) {
    float highest[kTileRows], lowest[kTileRows];
    for (int r = 0; r < n_rows; ++r) highest[r] = lowest[r] = leaf.intercept[k];
    for (int32_t e = 0; e < leaf.n_entries; ++e) {
      const float weight = leaf.weights[e * leaf.stride + k];
      const float* x = shifts + int64_t{e} * kTileRows;
      for (int r = 0; r < n_rows; ++r) {
        const float slope = weight * x[r];
        highest[r] += slope > 0.0f ? slope : 0.0f;
        lowest[r] += slope > 0.0f ? 0.0f : slope;
      }
    }
    for (int r = 0; r < n_rows; ++r) {
      // Comparisons with NaN are false.
      clipped[r] = highest[r] <= leaf.upper[k] && lowest[r] >= leaf.lower[k] ? 0 : 255;
      any |= clipped[r];
    }
  }
  return any != 0;
}

void add_slopes(const LeafSlopes& leaf, const float* coefficients, int64_t entry_step,
                const uint8_t* clipped, int n_rows, float* tile) {
  for (int32_t k = 0; k < leaf.n_outputs; ++k, clipped += kTileRows, tile += kTileRows) {
    float sums[kTileRows];
    for (int r = 0; r < n_rows; ++r) sums[r] = 0.0f;
    for (int32_t e = 0; e < leaf.n_entries; ++e) {
      const float weight = leaf.weights[e * leaf.stride + k];
      for (int r = 0; r < n_rows; ++r) sums[r] += coefficients[e * entry_step + r] * weight;
    }
    for (int r = 0; r < n_rows; ++r) tile[r] += clipped[r] != 0 ? 0.0f : sums[r];
  }
}

// Transpose 16 outputs of 16 rows and add them to the rows.
void write_square(const float* tile, int n_rows, float* out, int64_t row_step) {
  i32x16 rows[kLanes];
  transpose(reinterpret_cast<const int32_t*>(tile), kTileRows, rows);
  for (int r = 0; r < n_rows; ++r) {
    float* to = out + r * row_step;
    store(to, load<f32x16>(to) + load<f32x16>(&rows[r]));
  }
}

void write(const float* tile, int32_t n_outputs, int n_rows, float* out, int64_t row_step) {
  int32_t k = 0;
  for (; k + kLanes <= n_outputs; k += kLanes, tile += kLanes * kTileRows, out += kLanes)
    for (int r = 0; r < n_rows; r += kLanes)
      write_square(tile + r, n_rows - r < kLanes ? n_rows - r : kLanes, out + r * row_step,
                   row_step);
  for (int r = 0; r < n_rows; ++r)
    for (int32_t left = 0; k + left < n_outputs; ++left)
      out[r * row_step + left] += tile[left * kTileRows + r];
}

}  // namespace

extern const ShapKernels shap_kernels;
const ShapKernels shap_kernels = {decide,    hold,         encode_patterns, look_up,
                                  integrate, add_terms,    add_entries,     shift,
                                  scale,     find_clipped, add_slopes,      write};

}  // namespace polyleaf::POLYLEAF_ISA_NAMESPACE
