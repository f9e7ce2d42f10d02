// Split search interface: a search finds the best splits of a batch of nodes. The grower knows
// nothing of gradients or scores; a search knows nothing of expansion order or leaf values.
//
// To add a search, derive from `Search` and bind it as a class of its own
// (bindings/bind_searches.cpp).
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/bin_code.h"
#include "base/settings.h"
#include "grower/column_sampler.h"
#include "grower/row_partitioner.h"

namespace polyleaf {

// Interaction constraints: which features may occur together on a path from the root to a leaf.

struct InteractionConstraints {
  // One flag per feature: every path uses features of one group; empty: no constraint.
  std::vector<std::vector<uint8_t>> groups;
  int32_t max_features = 0;  // maximum number of different features on a path; 0: no limit

  bool is_active() const { return max_features > 0 || !groups.empty(); }

  // Clear the flags of features that a node with this path may not be split on.
  void restrict_features(const std::vector<int32_t>& path, std::vector<uint8_t>& features) const {
    if (max_features > 0 && path.size() >= static_cast<size_t>(max_features)) {
      std::vector<uint8_t> met(features.size(), 0);
      for (int32_t f : path) met[f] = features[f];
      features = met;
    }
    if (groups.empty()) return;
    std::vector<uint8_t> joined(features.size(), 0);
    for (const std::vector<uint8_t>& group : groups) {
      if (!std::all_of(path.begin(), path.end(), [&](int32_t f) { return group[f] != 0; }))
        continue;
      for (size_t f = 0; f < joined.size(); ++f) joined[f] |= group[f];
    }
    for (size_t f = 0; f < joined.size(); ++f) features[f] &= joined[f];
  }
};

// Smaller relative gains are float32 rounding noise.
constexpr double kMinRelativeGain = 1.0 / (1 << 20);

// A node as a search sees it.
struct SearchNode {
  int32_t id = 0;
  int32_t depth = 0;
  RowRange rows;      // rows of this process
  int64_t count = 0;  // rows over all ranks
  // Different features split on from the root; kept only with interaction constraints.
  std::vector<int32_t> path;
};

// The best split of a node; feature < 0: no admissible split.
struct SplitInfo {
  double gain = 0;
  int32_t feature = -1;
  int32_t threshold = -1;  // last code that goes left; -1: categorical, see `set`
  bool missing_left = false;
  CategorySet set = {};  // codes that go left, in the model's encoding
  int64_t n_left = 0;    // rows that go left, over all ranks
};

// The tree that is being grown as searches see it: rows, settings and allowed features.
class TreeContext {
 public:
  // features: n_features flags, or nullptr for all.
  void start(const RowPartitioner& rows, const GrowConfig& config,
             const InteractionConstraints& interactions, const uint8_t* features) {
    rows_ = &rows;
    config_ = &config;
    interactions_ = &interactions;
    const Bins& bins = rows.bins();
    features_.assign(bins.n_features(), 1);
    if (features != nullptr) std::copy(features, features + bins.n_features(), features_.begin());
    tiles_.clear();
    for (int t = 0; t < bins.n_tiles(); ++t) {
      const Tile& tile = bins.tile(t);
      if (std::any_of(tile.features, tile.features + tile.n_features,
                      [&](int f) { return features_[f] != 0; }))
        tiles_.push_back(t);
    }
  }

  const RowPartitioner& rows() const { return *rows_; }
  // Return the partitioner of rows in host memory.
  const HostRowPartitioner& partition() const { return rows_->host_rows(); }
  const Bins& bins() const { return rows_->bins(); }
  const GrowConfig& config() const { return *config_; }
  const std::vector<uint8_t>& features() const { return features_; }
  // Tiles that contain an allowed feature.
  const std::vector<int>& tiles() const { return tiles_; }
  // Number of work units of a node's scan: allowed tiles and groups of sparse features.
  int n_parts() const {
    return static_cast<int>(tiles_.size()) + bins().sparse_columns().n_groups();
  }

  // Return whether an allowed categorical feature has so many categories that they are sorted by
  // gradient (and not one-hot).
  bool has_sorted_categories() const {
    const int onehot_limit = config_->split.max_cat_to_onehot;
    for (int f = 0; f < bins().n_features(); ++f)
      if (features_[f] && bins().is_categorical(f) && bins().n_bins(f) >= onehot_limit)
        return true;  // and missing
    return false;
  }

  // Append the feature of a split to the path of its children.
  void extend_path(std::vector<int32_t>& path, int32_t feature) const {
    if (!interactions_->is_active() || std::find(path.begin(), path.end(), feature) != path.end())
      return;
    path.push_back(feature);
  }

  // Return whether a node may be split at all.
  bool can_split(int32_t depth, int64_t count) const {
    const int64_t min_samples = std::max(1, config_->split.min_child_samples);
    return (config_->max_depth < 0 || depth < config_->max_depth) && count >= 2 * min_samples;
  }
  bool can_split(const SearchNode& node) const { return can_split(node.depth, node.count); }

  // Return whether nodes may use fewer features than the tree.
  bool has_node_features() const {
    return config_->colsample_bynode < 1.0 || interactions_->is_active();
  }
  // Return the flags of features that the node may use: those of the tree that satisfy the
  // interaction constraints, and of these m the ceil(fraction * m) with the smallest hash of
  // (seed, node, feature).
  std::vector<uint8_t> get_allowed_features(const SearchNode& node) const {
    std::vector<uint8_t> allowed = features_;
    interactions_->restrict_features(node.path, allowed);
    if (config_->colsample_bynode < 1.0)
      sample_columns(config_->seed, node.id, config_->colsample_bynode, allowed);
    return allowed;
  }

 private:
  const RowPartitioner* rows_ = nullptr;
  const GrowConfig* config_ = nullptr;
  const InteractionConstraints* interactions_ = nullptr;
  std::vector<uint8_t> features_;
  std::vector<int> tiles_;
};

class Search {
 public:
  virtual ~Search() = default;

  // Row sample of the next tree or layer.
  virtual const RowSample& sample() const = 0;
  // Number of outputs in output_gain.
  virtual int n_outputs() const = 0;
  // Start a new tree with its root. The context stays valid until the tree is finished.
  virtual void start(const TreeContext& scope, const SearchNode& root) = 0;
  // Find the best splits of the root or of pairs of children (left, right). `renewed`:
  // derivatives or rows have changed since the parents were evaluated, so nothing of a parent's
  // sums may be reused.
  virtual void evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                        std::vector<SplitInfo>& splits) = 0;
  // Apply the split found for `parent`; `left` and `right` are its children. Writes each output's
  // contribution to gain * n_outputs.
  virtual void split(int32_t parent, const SearchNode& left, const SearchNode& right,
                     float* output_gain) = 0;
  // Summed Hessian (mean over outputs) of the root after `start` or of a node that the last
  // `split` created.
  virtual double cover(int32_t node) const = 0;
};

}  // namespace polyleaf
