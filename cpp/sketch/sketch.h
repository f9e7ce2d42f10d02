// Sketches: map derivatives of K outputs to d columns that replace them in the split search. They
// preserve squared distances between rows times `scale` squared, exactly or in expectation.
//
// Values are float32 (n, K); sketches, named `out`, float32 (n, d). Every sum runs in a fixed order
// (see tests/reference/sketches.py), so the result is the same bits for any number of threads and
// any instruction set.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/context.h"
#include "base/isa.h"
#include "base/matrix_view.h"
#include "base/rng.h"
#include "data/sparse_rows.h"

namespace polyleaf {

// Sparse rows times a dense matrix, for projections of sparse features.
//
// out (n, d) = rows (n, m) in CSR form @ matrix (m, d), float32. Terms are added in storage order,
// in runs of 256 whose sums are then added, so long rows keep their digits: the same bits for any
// number of threads and any instruction set.

struct CsrMatrix {
  int64_t n_rows;
  const int64_t* indptr;   // n_rows + 1
  const int32_t* indices;  // columns, each in [0, m)
  const float* values;
};

void csr_product(const CsrMatrix& rows, MatrixView<const float> matrix, MatrixView<float> out,
                 const Context& context);

struct CsrProductKernels {
  void (*product)(const CsrMatrix& rows, int64_t begin, int64_t end, const float* matrix, int32_t d,
                  float* out);
};
POLYLEAF_DECLARE_KERNELS(CsrProductKernels, csr_product_kernels)

// out = scale * values @ matrix (K, d), terms in order of k.
void project(MatrixView<const float> values, MatrixView<const float> matrix, float scale,
             MatrixView<float> out, const Context& context);

// Return the random signs of `project_signs`, (n_rows, d).
std::vector<float> make_random_signs(int32_t n_rows, int32_t d, uint64_t seed);

// `project` on random signs: the sign of output k and column j is one bit of hash(seed, k, j / 64)
// (Achlioptas, "Database-friendly random projections", 2003).
void project_signs(MatrixView<const float> values, uint64_t seed, float scale,
                   MatrixView<float> out, const Context& context);

// `project` on an orthonormal basis close to the leading right singular vectors over the rows of
// all ranks: subspace iteration from random signs (Halko, Martinsson and Tropp, 2011,
// algorithm 4.4).
void project_subspace(MatrixView<const float> values, uint64_t seed, int n_iterations, float scale,
                      MatrixView<float> out, const Context& context);

// Count-sketch (Charikar, Chen and Farach-Colton, 2002): output k is added to one of d buckets with
// a sign, both from hash(seed, k, 0). The second form takes sparse rows and costs O(non-zeros)
// whatever K is; it gives the same bits as the first on the same matrix made dense.
void count_sketch(MatrixView<const float> values, uint64_t seed, float scale, MatrixView<float> out,
                  const Context& context);
void count_sketch(const SparseRows& rows, uint64_t seed, float scale, MatrixView<float> out,
                  const Context& context);
struct CsrRows {
  int64_t begin, end;  // range of rows
  const int64_t* indptr;
  const int32_t* indices;
  const float* values;
};

static inline int32_t get_bucket(uint64_t z, int32_t d) {
  return static_cast<int32_t>((z >> 32) * static_cast<uint64_t>(d) >> 32);
}
static inline float get_sign(uint64_t z) {
  return (z & 1) != 0 ? -1.0f : 1.0f;
}

// energy (K,): sum of squares of each column over the rows of all ranks, with terms rounded as in
// fixed_point.h; NaN for columns with non-finite values.
void column_energy(MatrixView<const float> values, std::span<double> energy,
                   const Context& context);

// out (n,): sum of squares of each row; the halves of a row are added until one number is left.
void squared_norms(MatrixView<const float> values, std::span<float> out, const Context& context);

// out (n,): mean of each row.
void row_means(MatrixView<const float> values, std::span<float> out, const Context& context);

// out (n, d): column columns[j] times scale[j].
void take_columns(MatrixView<const float> values, std::span<const int32_t> columns,
                  std::span<const float> scale, MatrixView<float> out, const Context& context);

constexpr int kProductRows = 8;  // rows that share one load of the matrix, or of the sums

// Kernels, compiled once per instruction set. Matrices have `lanes` columns, d rounded up to a
// multiple of 16.
struct SketchKernels {
  // out (n, width), width <= lanes
  void (*project)(const float* values, int64_t n, int32_t n_columns, const float* matrix, int lanes,
                  float scale, float* out, int width);
  // sums (K, lanes) += values' @ factors (n, lanes), each column times its unit and rounded to
  // integers; space: kProductRows * (K + lanes) doubles
  void (*accumulate)(const float* values, int64_t n, int32_t n_columns, const double* unit,
                     const float* factors, int lanes, const double* factor_unit, double* space,
                     double* sums);
  // out (n, d); space: 16 * d floats
  void (*count)(const float* values, int64_t n, int32_t n_columns, const int32_t* bucket,
                const float* sign, int32_t d, float scale, float* space, float* out);
  void (*count_csr)(const CsrRows& rows, uint64_t seed, int32_t d, float scale, float* out);
  // largest (K,) = max(largest, bits of |values|)
  void (*largest)(const float* values, int64_t n, int32_t n_columns, uint32_t* largest);
  // sums (K,) += values * values * unit (K,), each rounded to an integer
  void (*energy)(const float* values, int64_t n, int32_t n_columns, const double* unit,
                 double* sums);
  void (*row_means)(const float* values, int64_t n, int32_t n_columns, float* out);
};
POLYLEAF_DECLARE_KERNELS(SketchKernels, sketch_kernels)

}  // namespace polyleaf
