// Raw scores of rows over very many outputs: of each row its labels, and what leaves have given it
// so far. An output that is neither has the raw score 0 and, with the losses that are used here,
// the derivative 0 (GBDT-SPARSE, section 4.1: at most |y_i| + k * trees entries a row).
//
// Owns: the merging of leaves into rows. Must not know: trees, searches, how leaves are fitted.
#pragma once
#include <cstdint>
#include <vector>

#include "base/context.h"
#include "data/sparse_labels.h"
#include "leaves/leaf_kind.h"
#include "losses/objectives.h"

namespace polyleaf {

class SparseRawScores {
 public:
  // Rows without targets: data that are only scored.
  SparseRawScores(int64_t n_rows, int64_t n_outputs);
  // `targets` hold every entry that is not 0 (and may hold some that are).
  SparseRawScores(const LabelRows& targets, const Workers& workers);

  SparseRawScores(const SparseRawScores&) = delete;
  SparseRawScores& operator=(const SparseRawScores&) = delete;

  // Adds the payload of its leaf, sparse, to every row, in float32, as prediction does.
  void add(const int32_t* leaf_of_row, const LeafView& leaves, const Workers& workers);

  // Gradients of all entries at raw + base, times the rows' weights (nullptr: 1).
  void gradients(const Loss& loss, float base, const float* weight, LabelRows& out,
                 const Workers& workers) const;

  // outputs, scores (n_rows, k): of what a row holds, the k outputs of highest raw score, highest
  // first, ties by number; -1 and -inf where there are fewer.
  void topk(int32_t k, int32_t* outputs, double* scores, const Workers& workers) const;

  const LabelRows& raw() const { return raw_; }

 private:
  // The targets of a block that are not 0: their entries, ascending, and their values.
  struct Targets {
    std::vector<int64_t> at;
    std::vector<float> values;
    void write(int64_t first, int64_t n, float* out) const;  // of entries [first, first + n)
  };

  LabelRows raw_;
  std::vector<Targets> targets_;  // beside the blocks of raw_; empty: no targets
};

}  // namespace polyleaf
