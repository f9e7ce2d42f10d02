// The trees of a model with their leaf values, ready to predict.
//
// Owns: trees, padded leaf values, and their compiled form (kernels/predict.h). Thread-safe: predictions run
// side by side, append and truncate wait for them. Must not know: where codes come from, rounds, base scores'
// meaning.
#pragma once
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "kernels/predict.h"
#include "tree.h"

namespace polyleaf {

// Feature codes, feature-major: feature f of row r is data[f * n_rows + r].
struct CodeMatrix {
  const uint8_t* data;
  int64_t n_features, n_rows;
};

// Leaf values of one tree: (n_leaves, n_values) with rows `stride` floats apart; padding is 0.
struct LeafValues {
  std::shared_ptr<float[]> data;
  int32_t n_values, stride;
};

// Trees first .. last - 1.
struct TreeRange {
  int32_t first, last;
};

class Forest {
 public:
  explicit Forest(int32_t n_outputs);

  // values: (tree.n_leaves, n_outputs), or (tree.n_leaves, 1) for a tree of one output (output >= 0; -1: of
  // all).
  void append(std::shared_ptr<const Tree> tree, const float* values, int32_t n_values, int32_t output);
  void truncate(int32_t n_trees);  // keeps the first n_trees

  int32_t n_outputs() const { return n_outputs_; }
  int32_t n_trees() const { return static_cast<int32_t>(entries_.size()); }
  const std::shared_ptr<const Tree>& tree(int32_t t) const { return entries_.at(t).tree; }
  const LeafValues& values(int32_t t) const { return entries_.at(t).values; }
  int32_t output(int32_t t) const { return entries_.at(t).output; }

  // raw (n_rows, n_outputs) += leaf vectors, tree after tree in order, in float32.
  void predict(const CodeMatrix& codes, float* raw, TreeRange range, int n_threads) const;
  // scores (n_rows, n_outputs) = (base + float32 sum of the leaf vectors from 0) * scale + offset, in
  // float64. scale and offset may be null: 1 and 0.
  void scores(const CodeMatrix& codes, const double* base, const double* scale, const double* offset,
              double* scores, TreeRange range, int n_threads) const;
  // leaves (n_rows, number of trees): the leaf id of each row in each tree.
  void apply(const CodeMatrix& codes, int32_t* leaves, TreeRange range, int n_threads) const;

 private:
  struct Entry {
    std::shared_ptr<const Tree> tree;
    LeafValues values;
    int32_t output;
    int32_t n_features;  // that this tree and those before it read: 1 + the largest feature
    size_t nodes_end, tops_end, exits_end, sets_end;
  };

  void check(const CodeMatrix& codes, TreeRange range) const;
  ForestArrays arrays() const;
  template <class Visit>
  void for_blocks(const CodeMatrix& codes, TreeRange range, int n_threads, const Visit& visit) const;

  int32_t n_outputs_;
  int32_t width_;  // floats of a padded leaf vector
  mutable std::shared_mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<CompiledTree> compiled_;  // beside entries_
  std::vector<WalkNode> nodes_;
  std::vector<uint32_t> payload_;
  std::vector<TopNode> tops_;
  std::vector<uint32_t> exits_;
  std::vector<CategorySet> sets_;
};

}  // namespace polyleaf
