// The trees of a model with their leaves, ready to predict. Thread-safe: predictions run
// concurrently; append and truncate wait for them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <shared_mutex>
#include <vector>

#include "base/context.h"
#include "forest/kernels/predict_kernels.h"
#include "forest/score_transform.h"
#include "grower/tree.h"
#include "leaves/leaf_block.h"

namespace polyleaf {

// Source of trees that a forest does not store itself, for example the arrays of a file; trees are
// rarely requested after loading.

class TreeSource {
 public:
  virtual ~TreeSource() = default;
  TreeSource(const TreeSource&) = delete;
  TreeSource& operator=(const TreeSource&) = delete;

  virtual int32_t n_trees() const = 0;
  // Write tree t into `tree`, reusing its memory. Throws std::invalid_argument unless
  // `check_tree` accepts it.
  virtual void read(int32_t t, Tree& tree) const = 0;
  virtual std::shared_ptr<const LeafBlock> leaves(int32_t t) const = 0;
  virtual OutputList outputs(int32_t t) const = 0;

 protected:
  TreeSource() = default;
};

struct CompileScratch;

// Feature codes, feature-major: feature f of row r is data[f * n_rows + r].
struct CodeMatrix {
  const uint8_t* data;
  int64_t n_features, n_rows;
};

// Ascending ids of the features that a code matrix has rows for; nullptr: all.
using FeatureIds = std::vector<int32_t>;

// Trees first .. last - 1.
struct TreeRange {
  int32_t first, last;
};

// A tree with its leaves and outputs.
struct ForestPart {
  std::shared_ptr<const Tree> tree;
  std::shared_ptr<const LeafBlock> leaves;
  OutputList outputs;
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

  // The leaves have a column for each of the outputs.
  void append(std::shared_ptr<const Tree> tree, std::shared_ptr<const LeafBlock> leaves,
              const OutputList& outputs);
  // Append all trees of a source; the source is kept instead of the trees.
  void extend(const std::shared_ptr<const TreeSource>& source);
  void truncate(int32_t n_trees);  // keep the first n_trees

  int32_t n_outputs() const { return n_outputs_; }
  int32_t n_trees() const { return static_cast<int32_t>(entries_.size()); }
  std::shared_ptr<const Tree> tree(int32_t t) const;  // read again if it comes from a source
  const std::shared_ptr<const LeafBlock>& leaves(int32_t t) const { return entries_.at(t).leaves; }
  const OutputList& outputs(int32_t t) const { return *entries_.at(t).outputs; }
  std::vector<ForestPart> parts(
      TreeRange range) const;  // shared copies, independent of later changes of the forest

  // Ascending ids of raw features that leaves of the range read, and of features that its nodes
  // split on.
  std::vector<int32_t> regressors(TreeRange range) const;
  std::vector<int32_t> split_features(TreeRange range) const;

  // raw (n_rows, n_outputs) += leaf values, tree after tree in order, in float32. `features` are
  // the raw features of linear leaves.
  void predict(const CodeMatrix& codes, const FeatureMatrix& features, float* raw, TreeRange range,
               const Context& context) const;
  // Compute scores (n_rows, n_outputs) from float32 sums of leaf values that start at 0.
  // `coded_features`: the features that `codes` has rows for, including all that the trees split
  // on.
  void scores(const CodeMatrix& codes, const FeatureIds* coded_features,
              const FeatureMatrix& features, const ScoreTransform& transform, double* scores,
              TreeRange range, const Context& context) const;
  // Find outputs and scores (n_rows, k): the k outputs of each row with the highest scores,
  // highest first, ties by output. Without a base only outputs in a leaf of the row take part;
  // with one all do. Missing ranks are -1, -inf.
  void topk(const CodeMatrix& codes, const FeatureMatrix& features, const ScoreTransform& transform,
            int32_t k, int32_t* outputs, double* scores, TreeRange range,
            const Context& context) const;
  // Find best (n_rows): the output of each row with the highest score, ties by output. Rows whose
  // best output the remaining trees cannot change are not run through them.
  void best_outputs(const CodeMatrix& codes, const FeatureMatrix& features,
                    const ScoreTransform& transform, int32_t* best, TreeRange range,
                    const Context& context) const;
  // Compute the float32 sums of the outputs in the leaves of each row. Trees of all outputs must
  // have sparse leaves.
  SparseScores sparse_scores(const CodeMatrix& codes, const FeatureMatrix& features,
                             TreeRange range, const Context& context) const;
  // leaves (n_rows, number of trees): leaf id of each row in each tree.
  void apply(const CodeMatrix& codes, int32_t* leaves, TreeRange range,
             const Context& context) const;

 private:
  struct Entry {
    std::shared_ptr<const Tree> tree;          // or nullptr:
    std::shared_ptr<const TreeSource> source;  // the source it is read from
    int32_t place;                             // tree number in the source
    std::shared_ptr<const LeafBlock> leaves;
    const OutputList* outputs;  // an element of output_lists_
    // 1 + the largest feature that this tree and those before it read, in splits and in leaves.
    int32_t n_features, n_regressors;
    size_t nodes_end, tops_end, exits_end, sets_end;
  };
  static const Entry kNoEntry;

  // Return the list among output_lists_.
  const OutputList* keep(OutputList outputs);
  // Compile a tree and append it with the given entry.
  void add(const Tree& tree, Entry entry, CompileScratch& scratch);
  void check(TreeRange range) const;
  void check(const CodeMatrix& codes, TreeRange range) const;
  void check(const CodeMatrix& codes, const FeatureMatrix& features, TreeRange range) const;
  bool is_leaf(size_t node) const { return nodes_[node].child == node; }
  std::vector<int32_t> find_split_features(TreeRange range) const;
  struct Checkpoints;
  // Add the least and the greatest leaf value of tree t, and the greatest magnitude, per output.
  void add_extremes(int32_t t, std::vector<double>& least, std::vector<double>& most,
                    std::vector<double>& magnitude) const;
  bool can_exit_early(const CodeMatrix& codes, const ScoreTransform& transform,
                      TreeRange range) const;
  ForestArrays arrays() const;
  struct RemappedTrees;
  template <class Visit>
  void visit_blocks(const CodeMatrix& codes, const FeatureIds* coded_features, TreeRange range,
                    int block_rows, const Context& context, const Visit& visit) const;
  struct BlockRows {
    int64_t first;
    int n_rows, thread;
  };
  // Call visit(rows, sums) for each block of rows; sums start from 0 or `start`.
  using BlockVisit = std::function<void(const BlockRows& rows, ScoreBlock& sums)>;
  void visit_score_blocks(const CodeMatrix& codes, const FeatureIds* coded_features,
                          const FeatureMatrix& features, const float* start, TreeRange range,
                          const Context& context, const BlockVisit& visit) const;
  // Call visit(rows, leaves) for each block of rows with leaf ids [row][tree].
  using LeavesVisit = std::function<void(const BlockRows& rows, const uint32_t* leaves)>;
  void visit_leaves(const CodeMatrix& codes, TreeRange range, const Context& context,
                    const LeavesVisit& visit) const;
  // Call visit(row, thread, sums) for each row; requires has_sparse_sums(range).
  using SumsVisit = std::function<void(int64_t row, int thread, SparseAccumulator& sums)>;
  void visit_sums(const CodeMatrix& codes, const FeatureMatrix& features, TreeRange range,
                  const Context& context, const SumsVisit& visit) const;
  // Return whether sums of a row are sparse: every tree has sparse leaves or lists its outputs.
  bool has_sparse_sums(TreeRange range) const;
  int64_t max_entries(TreeRange range) const;  // of the leaves of one row
  std::vector<int32_t> find_tree_outputs(TreeRange range) const;

  int32_t n_outputs_;
  int32_t width_;  // floats of a padded vector of all outputs
  mutable std::shared_mutex mutex_;
  std::set<OutputList> output_lists_;  // of all trees, each once
  std::vector<Entry> entries_;
  std::vector<CompiledTree> compiled_;  // parallel to entries_
  std::vector<LeafTarget> targets_;     // likewise
  std::vector<WalkNode> nodes_;
  std::vector<uint32_t> node_data_;
  std::vector<TopNode> tops_;
  std::vector<uint32_t> exits_;
  std::vector<CategorySet> sets_;
};

}  // namespace polyleaf
