// The trees of a model with their leaves, ready to predict.
//
// Owns: trees, their leaf blocks, and their compiled form (kernels/predict.h). Thread-safe:
// predictions run side by side, append and truncate wait for them. Must not know: where codes come
// from, rounds, base scores' meaning.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "base/context.h"
#include "forest/kernels/predict_kernels.h"
#include "forest/score_unit.h"
#include "forest/tree_source.h"
#include "grower/tree.h"
#include "leaves/leaf_block.h"

namespace polyleaf {

struct CompileScratch;

// Feature codes, feature-major: feature f of row r is data[f * n_rows + r].
struct CodeMatrix {
  const uint8_t* data;
  int64_t n_features, n_rows;
};

// The features that a code matrix has rows for, ascending, where it has not all; nullptr: all.
using FeatureIds = std::vector<int32_t>;

// Trees first .. last - 1.
struct TreeRange {
  int32_t first, last;
};

// A tree with its leaves; output: the only one that they are for, or -1.
struct ForestPart {
  std::shared_ptr<const Tree> tree;
  std::shared_ptr<const LeafBlock> leaves;
  int32_t output;
};

// A sparse matrix (n_rows, n_outputs) in compressed rows; outputs ascend within a row.
struct SparseScores {
  std::vector<int64_t> begin;
  std::vector<int32_t> outputs;
  std::vector<float> values;
};

class ScoreBlock;
class SparseAccumulator;

class Forest {
 public:
  explicit Forest(int32_t n_outputs);

  // output >= 0: the leaves are of one column, for that output; -1: of all outputs.
  void append(std::shared_ptr<const Tree> tree, std::shared_ptr<const LeafBlock> leaves,
              int32_t output);
  // All trees of the source, which is kept in their place.
  void extend(const std::shared_ptr<const TreeSource>& source);
  void truncate(int32_t n_trees);  // keeps the first n_trees

  int32_t n_outputs() const { return n_outputs_; }
  int32_t n_trees() const { return static_cast<int32_t>(entries_.size()); }
  std::shared_ptr<const Tree> tree(int32_t t) const;  // of a source: made anew
  const std::shared_ptr<const LeafBlock>& leaves(int32_t t) const { return entries_.at(t).leaves; }
  int32_t output(int32_t t) const { return entries_.at(t).output; }
  std::vector<ForestPart> parts(
      TreeRange range) const;  // to be kept, whatever becomes of the forest

  // Raw features that leaves of the range read, ascending; features that its nodes split on.
  std::vector<int32_t> regressors(TreeRange range) const;
  std::vector<int32_t> split_features(TreeRange range) const;

  // raw (n_rows, n_outputs) += leaf payloads, tree after tree in order, in float32. `features` are
  // what leaves read.
  void predict(const CodeMatrix& codes, const FeatureMatrix& features, float* raw, TreeRange range,
               const Workers& workers) const;
  // scores (n_rows, n_outputs), from the float32 sums of the leaf payloads from 0.
  // `coded_features`: the features that codes are of, all that the trees split on among them.
  void scores(const CodeMatrix& codes, const FeatureIds* coded_features,
              const FeatureMatrix& features, const ScoreTransform& transform, double* scores,
              TreeRange range, const Workers& workers) const;
  // outputs, scores (n_rows, k): the k outputs of each row with the highest scores, highest first,
  // ties by number. Without a base only outputs that a leaf of the row holds take part; with one
  // all of them do. Where there are fewer than k: -1, -inf.
  void topk(const CodeMatrix& codes, const FeatureMatrix& features, const ScoreTransform& transform,
            int32_t k, int32_t* outputs, double* scores, TreeRange range,
            const Workers& workers) const;
  // The float32 sums of the outputs that a leaf of the row holds. No tree may be for all outputs
  // unless its leaves are sparse.
  SparseScores sparse_scores(const CodeMatrix& codes, const FeatureMatrix& features,
                             TreeRange range, const Workers& workers) const;
  // leaves (n_rows, number of trees): the leaf id of each row in each tree.
  void apply(const CodeMatrix& codes, int32_t* leaves, TreeRange range,
             const Workers& workers) const;

 private:
  struct Entry {
    std::shared_ptr<const Tree> tree;          // or nullptr, and
    std::shared_ptr<const TreeSource> source;  // where it is read again
    int32_t place;                             // in the source
    std::shared_ptr<const LeafBlock> leaves;
    int32_t output;
    // What this tree and those before it read: 1 + the largest feature, of splits and of leaves.
    int32_t n_features, n_regressors;
    size_t nodes_end, tops_end, exits_end, sets_end;
  };
  static const Entry kNoEntry;

  // Compiles a tree. `entry` says of it what is known before.
  void add(const Tree& tree, Entry entry, CompileScratch& scratch);
  void check(TreeRange range) const;
  void check(const CodeMatrix& codes, TreeRange range) const;
  void check(const CodeMatrix& codes, const FeatureMatrix& features, TreeRange range) const;
  bool is_leaf(size_t node) const { return nodes_[node].child == node; }
  std::vector<int32_t> find_split_features(TreeRange range) const;
  ForestArrays arrays() const;
  struct RemappedTrees;
  template <class Visit>
  void visit_blocks(const CodeMatrix& codes, const FeatureIds* coded_features, TreeRange range,
                    int block_rows, const Workers& workers, const Visit& visit) const;
  struct BlockRows {
    int64_t first;
    int n_rows, thread;
  };
  // visit(rows, sums): the sums of each block of rows, from 0 or from `start`.
  using BlockVisit = std::function<void(const BlockRows& rows, ScoreBlock& sums)>;
  void visit_score_blocks(const CodeMatrix& codes, const FeatureIds* coded_features,
                          const FeatureMatrix& features, const float* start, TreeRange range,
                          const Workers& workers, const BlockVisit& visit) const;
  // visit(rows, leaves): the leaf ids of each block of rows, [row][tree].
  using LeavesVisit = std::function<void(const BlockRows& rows, const uint32_t* leaves)>;
  void visit_leaves(const CodeMatrix& codes, TreeRange range, const Workers& workers,
                    const LeavesVisit& visit) const;
  // visit(row, thread, sums): the sums of each row. Only where has_sparse_sums(range).
  using SumsVisit = std::function<void(int64_t row, int thread, SparseAccumulator& sums)>;
  void visit_sums(const CodeMatrix& codes, const FeatureMatrix& features, TreeRange range,
                  const Workers& workers, const SumsVisit& visit) const;
  // Whether rows hold few outputs: every tree has leaves that name theirs, or is for one output.
  bool has_sparse_sums(TreeRange range) const;
  int64_t max_entries(TreeRange range) const;  // of the leaves of one row
  std::vector<int32_t> find_tree_outputs(TreeRange range) const;

  int32_t n_outputs_;
  int32_t width_;  // floats of a padded vector of all outputs
  mutable std::shared_mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<CompiledTree> compiled_;  // beside entries_
  std::vector<LeafTarget> targets_;     // the same
  std::vector<WalkNode> nodes_;
  std::vector<uint32_t> node_data_;
  std::vector<TopNode> tops_;
  std::vector<uint32_t> exits_;
  std::vector<CategorySet> sets_;
};

}  // namespace polyleaf
