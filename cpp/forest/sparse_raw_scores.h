// Sparse raw scores of rows over very many outputs: each row holds its labels and the outputs that
// leaves have contributed to. Every other output has raw score 0 and, with the losses used here,
// derivative 0 (GBDT-SPARSE, section 4.1: at most |y_i| + k * trees entries per row).
#pragma once
#include <cstdint>
#include <vector>

#include "base/context.h"
#include "data/sparse_rows.h"
#include "leaves/leaf_kind.h"
#include "losses/objectives.h"

namespace polyleaf {

class SparseRawScores {
 public:
  // Rows without targets, for data that are only scored.
  SparseRawScores(int64_t n_rows, int64_t n_outputs);
  // `targets` contain every non-zero entry, and possibly zeros.
  SparseRawScores(const SparseRows& targets, const Context& context);

  SparseRawScores(const SparseRawScores&) = delete;
  SparseRawScores& operator=(const SparseRawScores&) = delete;

  // Add the sparse leaf value of every row, in float32, as prediction does.
  void add(const int32_t* leaf_of_row, const LeafView& leaves, const Context& context);

  // Compute the gradients of all entries at raw + base, times the row weights (nullptr: 1).
  void gradients(const Loss& loss, float base, const float* weight, SparseRows& out,
                 const Context& context) const;

  // Find outputs and scores (n_rows, k): the k outputs of highest raw score in each row, highest
  // first, ties by output; -1 and -inf where there are fewer.
  void topk(int32_t k, int32_t* outputs, double* scores, const Context& context) const;

  const SparseRows& raw() const { return raw_; }

 private:
  // The non-zero targets of a block: their entries, ascending, and their values.
  struct Targets {
    std::vector<int64_t> at;
    std::vector<float> values;
    // writes the targets of entries [first, first + n)
    void write(int64_t first, int64_t n, float* out) const;
  };

  SparseRows raw_;
  std::vector<Targets> targets_;  // parallel to the blocks of raw_; empty: no targets
};

}  // namespace polyleaf
