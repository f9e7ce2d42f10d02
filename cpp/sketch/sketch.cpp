#include "sketch/sketch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/fixed_point.h"
#include "base/inline.h"
#include "base/parallel.h"

namespace polyleaf {

namespace {

// Rows per task; rows of a transposed matrix may differ in length.
constexpr int64_t kCsrBlock = 64;

}  // namespace

void csr_product(const CsrMatrix& rows, MatrixView<const float> matrix, MatrixView<float> out,
                 const Context& context) {
  POLYLEAF_DCHECK(out.n_rows == rows.n_rows && out.n_columns == matrix.n_columns);
  const auto d = static_cast<int32_t>(matrix.n_columns);
  parallel_for(context, Block::count(rows.n_rows, kCsrBlock), [&](int64_t task, int) {
    const Block block(rows.n_rows, kCsrBlock, task);
    POLYLEAF_SELECT(csr_product_kernels)
        .product(rows, block.begin, block.end, matrix.data, d, out.data);
  });
}

namespace {

constexpr int64_t kBlock = 256;          // rows per task
constexpr int64_t kProductBlock = 1024;  // rows per task of a transposed product
static_assert(kProductBlock <= kSumBlock);
// A column is dependent if orthogonalisation shrinks it below this fraction of its norm.
constexpr double kDependenceTolerance = 1e-6;

const SketchKernels& kernels() {
  return POLYLEAF_SELECT(sketch_kernels);
}

int pad_to_lanes(int32_t d) {
  return round_up(d, 16);
}

// A (K, d) matrix with columns padded to whole vectors.
class Padded {
 public:
  Padded(int32_t n_rows, int32_t d)
      : lanes_(pad_to_lanes(d)), data_(static_cast<size_t>(n_rows) * lanes_) {
    std::fill_n(data_.data(), static_cast<size_t>(n_rows) * lanes_, 0.0f);
  }
  explicit Padded(MatrixView<const float> matrix)
      : Padded(static_cast<int32_t>(matrix.n_rows), static_cast<int32_t>(matrix.n_columns)) {
    for (int64_t k = 0; k < matrix.n_rows; ++k)
      std::copy_n(matrix.row(k), matrix.n_columns, row(k));
  }
  int lanes() const { return lanes_; }
  float* row(int64_t k) { return data_.data() + k * lanes_; }
  const float* data() const { return data_.data(); }

 private:
  int lanes_;
  Buffer<float> data_;
};

// The number of columns, as kernels take it.
int32_t columns(MatrixView<const float> values) {
  return static_cast<int32_t>(values.n_columns);
}

void project_padded(MatrixView<const float> values, const Padded& matrix, float scale,
                    MatrixView<float> out, const Context& context) {
  POLYLEAF_DCHECK(out.n_rows == values.n_rows && out.n_columns <= matrix.lanes());
  parallel_for(context, Block::count(values.n_rows, kBlock), [&](int64_t task, int) {
    const Block rows(values.n_rows, kBlock, task);
    kernels().project(values.row(rows.begin), rows.end - rows.begin, columns(values), matrix.data(),
                      matrix.lanes(), scale, out.row(rows.begin), columns(out));
  });
}

// A column-major (K, d) float64 matrix; it is small, so simple loops suffice.
using Columns = std::vector<std::vector<double>>;

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void orthonormalise(Columns& q) {
  for (size_t j = 0; j < q.size(); ++j) {
    const double before = std::sqrt(dot(q[j], q[j]));
    for (int pass = 0; pass < 2; ++pass)
      for (size_t i = 0; i < j; ++i) {
        const double share = dot(q[i], q[j]);
        for (size_t k = 0; k < q[j].size(); ++k) q[j][k] -= share * q[i][k];
      }
    const double after = std::sqrt(dot(q[j], q[j]));
    const double factor = after > kDependenceTolerance * before ? 1.0 / after : 0.0;
    for (double& x : q[j]) x = factor > 0 ? x * factor : 0.0;
  }
}

Padded rounded(const Columns& q, int32_t n_rows) {
  Padded matrix(n_rows, static_cast<int32_t>(q.size()));
  for (size_t j = 0; j < q.size(); ++j)
    for (int32_t k = 0; k < n_rows; ++k) matrix.row(k)[j] = static_cast<float>(q[j][k]);
  return matrix;
}

// Return the largest magnitude of each column over the rows of all ranks; infinite or NaN where a
// value is.
std::vector<double> column_maxima(MatrixView<const float> values, const Context& context) {
  const int64_t n = values.n_rows, n_columns = values.n_columns;
  const auto n_threads = static_cast<int64_t>(context.n_threads);
  std::vector<uint32_t> bits(static_cast<size_t>(n_threads * n_columns), 0);
  parallel_for(context, Block::count(n, kBlock), [&](int64_t task, int thread) {
    const Block rows(n, kBlock, task);
    kernels().largest(values.row(rows.begin), rows.end - rows.begin, columns(values),
                      bits.data() + thread * n_columns);
  });
  std::vector<double> largest(static_cast<size_t>(n_columns));
  for (int64_t k = 0; k < n_columns; ++k) {
    uint32_t most = 0;
    for (int64_t thread = 0; thread < n_threads; ++thread)
      most = std::max(most, bits[thread * n_columns + k]);
    largest[k] = __builtin_bit_cast(float, most);
  }
  context.allreduce_max(largest);
  return largest;
}

// Return factors of columns of these maxima, whose products with `power` values are integers of at
// most 2^bits; 0 for columns that are not finite.
std::vector<double> column_units(const std::vector<double>& maxima, int bits, int power) {
  std::vector<double> units;
  for (double most : maxima) {
    const int exponent = bits - power * get_exponent_above(most);
    units.push_back(std::isfinite(most) ? std::ldexp(1.0, exponent) : 0.0);
  }
  return units;
}

// Compute values' @ the first d columns of factors, over the rows of all ranks: both are rounded to
// integers of half the bits of a term (fixed_point.h), so their products add up exactly.
// `maxima`: of the columns of values; `n_rows`: of all ranks.
Columns transposed_product(MatrixView<const float> values, const std::vector<double>& maxima,
                           MatrixView<const float> factors, int32_t d, int64_t n_rows,
                           const Context& context) {
  const int64_t n = values.n_rows, n_columns = values.n_columns, lanes = factors.n_columns;
  const int bits = get_term_bits(n_rows) / 2;
  const std::vector<double> unit = column_units(maxima, bits, 1);
  const std::vector<double> factor_unit = column_units(column_maxima(factors, context), bits, 1);
  struct Sums {
    Buffer<double> space, block;
    std::vector<int64_t> total;
  };
  std::vector<Sums> threads(static_cast<size_t>(context.n_threads));
  const auto n_sums = static_cast<size_t>(n_columns * lanes);
  parallel_for(context, Block::count(n, kProductBlock), [&](int64_t task, int thread) {
    const Block rows(n, kProductBlock, task);
    Sums& sums = threads[thread];
    sums.space.reserve(static_cast<size_t>(kProductRows * (n_columns + lanes)));
    sums.block.reserve(n_sums);
    sums.total.resize(n_sums);
    std::fill_n(sums.block.data(), n_sums, 0.0);
    kernels().accumulate(values.row(rows.begin), rows.end - rows.begin, columns(values),
                         unit.data(), factors.row(rows.begin), columns(factors), factor_unit.data(),
                         sums.space.data(), sums.block.data());
    for (int64_t k = 0; k < n_columns; ++k)
      for (int64_t j = 0; j < d; ++j)
        if (unit[k] > 0 && factor_unit[j] > 0)
          sums.total[k * lanes + j] += static_cast<int64_t>(sums.block.data()[k * lanes + j]);
  });
  std::vector<int64_t> total(n_sums);
  for (const Sums& sums : threads)
    for (size_t i = 0; i < sums.total.size(); ++i) total[i] += sums.total[i];
  context.allreduce_sum(total);
  Columns product(static_cast<size_t>(d), std::vector<double>(static_cast<size_t>(n_columns)));
  for (int64_t k = 0; k < n_columns; ++k)
    for (int32_t j = 0; j < d; ++j) {
      const double scale = unit[k] * factor_unit[j];
      product[j][k] = scale > 0 ? static_cast<double>(total[k * lanes + j]) / scale
                                : std::numeric_limits<double>::quiet_NaN();
    }
  return product;
}

}  // namespace

std::vector<float> make_random_signs(int32_t n_rows, int32_t d, uint64_t seed) {
  std::vector<float> signs(static_cast<size_t>(n_rows) * d);
  for (int32_t k = 0; k < n_rows; ++k)
    for (int32_t j = 0; j < d; j += 64) {
      uint64_t bits = hash(seed, static_cast<uint64_t>(k), static_cast<uint64_t>(j / 64));
      for (int32_t i = j; i < std::min(d, j + 64); ++i, bits >>= 1)
        signs[static_cast<size_t>(k) * d + i] = get_sign(bits);
    }
  return signs;
}

void project(MatrixView<const float> values, MatrixView<const float> matrix, float scale,
             MatrixView<float> out, const Context& context) {
  POLYLEAF_DCHECK(matrix.n_rows == values.n_columns && out.n_columns == matrix.n_columns);
  project_padded(values, Padded(matrix), scale, out, context);
}

void project_signs(MatrixView<const float> values, uint64_t seed, float scale,
                   MatrixView<float> out, const Context& context) {
  const std::vector<float> signs = make_random_signs(columns(values), columns(out), seed);
  project(values, {signs.data(), values.n_columns, out.n_columns}, scale, out, context);
}

void project_subspace(MatrixView<const float> values, uint64_t seed, int n_iterations, float scale,
                      MatrixView<float> out, const Context& context) {
  const int32_t n_columns = columns(values), d = columns(out);
  const std::vector<float> signs = make_random_signs(n_columns, d, seed);
  Columns q(static_cast<size_t>(d), std::vector<double>(static_cast<size_t>(n_columns)));
  for (int32_t j = 0; j < d; ++j)
    for (int32_t k = 0; k < n_columns; ++k) q[j][k] = signs[static_cast<size_t>(k) * d + j];
  orthonormalise(q);
  Buffer<float> memory(static_cast<size_t>(values.n_rows) * pad_to_lanes(d));
  const MatrixView<float> factors(memory.data(), values.n_rows, pad_to_lanes(d));
  const int64_t n_rows = context.allreduce_sum(values.n_rows);
  const std::vector<double> maxima = column_maxima(values, context);
  for (int iteration = 0; iteration < n_iterations; ++iteration) {
    project_padded(values, rounded(q, n_columns), 1.0f, factors, context);
    q = transposed_product(values, maxima, factors, d, n_rows, context);
    orthonormalise(q);
  }
  project_padded(values, rounded(q, n_columns), scale, out, context);
}

void count_sketch(MatrixView<const float> values, uint64_t seed, float scale, MatrixView<float> out,
                  const Context& context) {
  POLYLEAF_DCHECK(out.n_rows == values.n_rows);
  const int32_t n_columns = columns(values), d = columns(out);
  Buffer<int32_t> bucket(static_cast<size_t>(n_columns));
  Buffer<float> sign(static_cast<size_t>(n_columns));
  for (int32_t k = 0; k < n_columns; ++k) {
    const uint64_t z = hash(seed, static_cast<uint64_t>(k), 0);
    bucket[k] = get_bucket(z, d);
    sign[k] = get_sign(z);
  }
  std::vector<Buffer<float>> space(static_cast<size_t>(context.n_threads));
  for (auto& buffer : space) buffer.reserve(static_cast<size_t>(d) * 16);
  parallel_for(context, Block::count(values.n_rows, kBlock), [&](int64_t task, int thread) {
    const Block rows(values.n_rows, kBlock, task);
    kernels().count(values.row(rows.begin), rows.end - rows.begin, n_columns, bucket.data(),
                    sign.data(), d, scale, space[thread].data(), out.row(rows.begin));
  });
}

void count_sketch(const SparseRows& rows, uint64_t seed, float scale, MatrixView<float> out,
                  const Context& context) {
  POLYLEAF_DCHECK(out.n_rows == rows.n_rows());
  parallel_for(context, rows.n_blocks(), [&](int64_t b, int) {
    const SparseRows::Block& block = rows.block(b);
    const SparsePattern& pattern = *block.pattern;
    kernels().count_csr(
        {0, pattern.n_rows(), pattern.begin.data(), pattern.outputs.data(), block.values.data()},
        seed, columns(out), scale, out.row(b * kSparseBlockRows));
  });
}

void column_energy(MatrixView<const float> values, std::span<double> energy,
                   const Context& context) {
  const int64_t n = values.n_rows;
  const int32_t n_columns = columns(values);
  POLYLEAF_DCHECK(static_cast<int64_t>(energy.size()) == n_columns);
  const int64_t n_blocks = Block::count(n, kSumBlock);
  const int term = get_term_bits(context.allreduce_sum(n));
  const std::vector<double> unit = column_units(column_maxima(values, context), term, 2);
  std::vector<double> parts(static_cast<size_t>(n_blocks) * n_columns, 0.0);
  parallel_for(context, n_blocks, [&](int64_t task, int) {
    const Block rows(n, kSumBlock, task);
    kernels().energy(values.row(rows.begin), rows.end - rows.begin, n_columns, unit.data(),
                     parts.data() + task * n_columns);
  });
  std::vector<int64_t> sums(static_cast<size_t>(n_columns), 0);
  for (int64_t task = 0; task < n_blocks; ++task)
    for (int32_t k = 0; k < n_columns; ++k)
      if (unit[k] > 0) sums[k] += static_cast<int64_t>(parts[task * n_columns + k]);
  context.allreduce_sum(sums);
  for (int32_t k = 0; k < n_columns; ++k)
    energy[k] = unit[k] > 0 ? static_cast<double>(sums[k]) / unit[k]
                            : std::numeric_limits<double>::quiet_NaN();
}

void squared_norms(MatrixView<const float> values, std::span<float> out, const Context& context) {
  parallel_for(context, Block::count(values.n_rows, kBlock), [&](int64_t task, int) {
    const Block rows(values.n_rows, kBlock, task);
    std::vector<float> squares(static_cast<size_t>(values.n_columns));
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      for (int64_t k = 0; k < values.n_columns; ++k)
        squares[k] = values.row(i)[k] * values.row(i)[k];
      for (int64_t width = values.n_columns; width > 1;) {
        const int64_t half = (width + 1) / 2;
        for (int64_t k = half; k < width; ++k) squares[k - half] += squares[k];
        width = half;
      }
      out[i] = squares[0];
    }
  });
}

void row_means(MatrixView<const float> values, std::span<float> out, const Context& context) {
  POLYLEAF_DCHECK(static_cast<int64_t>(out.size()) == values.n_rows);
  parallel_for(context, Block::count(values.n_rows, kBlock), [&](int64_t task, int) {
    const Block rows(values.n_rows, kBlock, task);
    kernels().row_means(values.row(rows.begin), rows.end - rows.begin, columns(values),
                        out.data() + rows.begin);
  });
}

void take_columns(MatrixView<const float> values, std::span<const int32_t> columns,
                  std::span<const float> scale, MatrixView<float> out, const Context& context) {
  POLYLEAF_DCHECK(columns.size() == scale.size() && out.n_rows == values.n_rows);
  POLYLEAF_DCHECK(out.n_columns == static_cast<int64_t>(columns.size()));
  parallel_for(context, Block::count(values.n_rows, kBlock), [&](int64_t task, int) {
    const Block rows(values.n_rows, kBlock, task);
    for (int64_t i = rows.begin; i < rows.end; ++i)
      for (size_t j = 0; j < columns.size(); ++j)
        out.row(i)[j] = values.row(i)[columns[j]] * scale[j];
  });
}

}  // namespace polyleaf
