// Rows over very many outputs of which each row holds few: pairs (output, value), outputs
// ascending. Stored in blocks of rows, so that rows can grow block by block.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/context.h"

namespace polyleaf {

// An array of a block stays below 2 MiB, from which `Buffer` uses huge pages that the system would
// clear for every tree: up to 8,192 entries per row.
constexpr int kSparseBlockBits = 6;
constexpr int64_t kSparseBlockRows = int64_t{1} << kSparseBlockBits;  // rows per block

// Outputs that the rows of a block hold. Immutable, so that scores and gradients share it.
struct SparsePattern {
  std::vector<int64_t> begin;  // entries of row r of the block: begin[r] .. begin[r + 1] - 1
  Buffer<int32_t> outputs;
  int64_t n_entries() const { return begin.back(); }
  int64_t n_rows() const { return static_cast<int64_t>(begin.size()) - 1; }
};

struct SparseRow {
  int64_t n;
  const int32_t* outputs;
  const float* values;
};

// One float per entry of each block.
class SparseRows {
 public:
  struct Block {
    std::shared_ptr<const SparsePattern> pattern;
    Buffer<float> values;
  };

  SparseRows() = default;
  SparseRows(int64_t n_rows, int64_t n_outputs) : n_rows_(n_rows), n_outputs_(n_outputs) {
    blocks_.resize(static_cast<size_t>((n_rows + kSparseBlockRows - 1) >> kSparseBlockBits));
  }

  SparseRows(const SparseRows&) = delete;
  SparseRows& operator=(const SparseRows&) = delete;
  SparseRows(SparseRows&&) noexcept = default;
  SparseRows& operator=(SparseRows&&) noexcept = default;

  int64_t n_rows() const { return n_rows_; }
  int64_t n_outputs() const { return n_outputs_; }
  int64_t n_blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t n_entries() const {
    int64_t n = 0;
    for (const Block& b : blocks_) n += b.pattern->n_entries();
    return n;
  }
  Block& block(int64_t b) { return blocks_[b]; }
  const Block& block(int64_t b) const { return blocks_[b]; }
  SparseRow row(int64_t i) const {
    const Block& b = blocks_[i >> kSparseBlockBits];
    const int64_t r = i & (kSparseBlockRows - 1), from = b.pattern->begin[r];
    return {b.pattern->begin[r + 1] - from, b.pattern->outputs.data() + from,
            b.values.data() + from};
  }

 private:
  int64_t n_rows_ = 0, n_outputs_ = 0;
  std::vector<Block> blocks_;
};

// Return rows of CSR arrays, or throw std::invalid_argument if they are inconsistent. values
// nullptr: 1 throughout.
SparseRows make_sparse_rows(const int64_t* indptr, const int32_t* outputs, const float* values,
                            int64_t n_rows, int64_t n_entries, int64_t n_outputs,
                            const Context& context);

// Write the Euclidean norm of every row to out (n_rows,).
void compute_row_norms(const SparseRows& rows, float* out, const Context& context);

}  // namespace polyleaf
