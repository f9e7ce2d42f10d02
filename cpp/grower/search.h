// A search finds the best split of nodes. The grower asks it once per batch of nodes and knows
// nothing of channels, scores or derivatives; a search knows nothing of schedules, leaves or what
// becomes of a tree.
//
// To add a search: derive from `Search`, and bind it as an object of its own
// (bindings/bind_searches.cpp), which the grower is handed.
#pragma once
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "base/bin_code.h"
#include "base/settings.h"
#include "grower/column_sampler.h"
#include "grower/host_row_partitioner.h"
#include "grower/interactions.h"

namespace polyleaf {

constexpr double kMinRelativeGain =
    1.0 / (1 << 20);  // below this float32 cannot tell gain from rounding

// What a search is told about a node.
struct SearchNode {
  int32_t id = 0;
  int32_t depth = 0;
  RowRange rows;      // those that lie here: what is read
  int64_t count = 0;  // rows of the node, wherever they lie: what decides
  std::vector<int32_t>
      path;  // features split on from the root, each once; kept where there are rules
};

// The best split of a node; feature < 0: none that is admissible.
struct SplitInfo {
  double gain = 0;
  int32_t feature = -1;
  int32_t threshold = -1;  // last code that goes left; -1: `set` tells
  bool missing_left = false;
  CategorySet set = {};  // codes that go left, as the model sees them (missing is 255)
  int64_t n_left = 0;    // rows that go left, wherever they lie
};

// One tree as searches see it: its rows, its settings, and the features that nodes may use.
class TreeContext {
 public:
  // features: n_features flags, or nullptr for all.
  void start(const RowPartitioner& rows, const GrowConfig& config,
             const InteractionConstraints& interactions, const uint8_t* features) {
    rows_ = &rows;
    partition_ = dynamic_cast<const HostRowPartitioner*>(&rows);
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
  // The same, for searches that read rows in memory of this machine.
  const HostRowPartitioner& partition() const {
    if (partition_ == nullptr)
      throw std::invalid_argument("This search reads rows that lie on no device.");
    return *partition_;
  }
  const Bins& bins() const { return rows_->bins(); }
  const GrowConfig& config() const { return *config_; }
  const std::vector<uint8_t>& features() const { return features_; }
  // Tiles with a feature that the tree may use.
  const std::vector<int>& tiles() const { return tiles_; }
  // What a node's best split is looked for in: those, and groups of sparse features.
  int n_parts() const { return static_cast<int>(tiles_.size()) + bins().cells().n_groups(); }

  // Whether there is a feature of so many categories that they are put in order.
  bool has_sorted_categories() const {
    const int onehot_limit = config_->split.max_cat_to_onehot;
    for (int f = 0; f < bins().n_features(); ++f)
      if (features_[f] && bins().is_categorical(f) && bins().n_bins(f) >= onehot_limit)
        return true;  // and missing
    return false;
  }

  // What the children of a split on `feature` are told of their path.
  void extend_path(std::vector<int32_t>& path, int32_t feature) const {
    if (!interactions_->is_active() || std::find(path.begin(), path.end(), feature) != path.end())
      return;
    path.push_back(feature);
  }

  // Whether a node may have children at all.
  bool can_split(int32_t depth, int64_t count) const {
    const int64_t min_samples = std::max(1, config_->split.min_child_samples);
    return (config_->max_depth < 0 || depth < config_->max_depth) && count >= 2 * min_samples;
  }
  bool can_split(const SearchNode& node) const { return can_split(node.depth, node.count); }

  // Whether nodes may use fewer features than the tree.
  bool has_node_features() const {
    return config_->colsample_bynode < 1.0 || interactions_->is_active();
  }
  // Those of the tree that may meet the ones on the node's path; of these m the ceil(fraction * m)
  // with the smallest hash of (seed, node, feature).
  std::vector<uint8_t> get_allowed_features(const SearchNode& node) const {
    std::vector<uint8_t> allowed = features_;
    interactions_->restrict_features(node.path, allowed);
    if (config_->colsample_bynode < 1.0)
      sample_columns(config_->seed, node.id, config_->colsample_bynode, allowed);
    return allowed;
  }

 private:
  const RowPartitioner* rows_ = nullptr;
  const HostRowPartitioner* partition_ = nullptr;
  const GrowConfig* config_ = nullptr;
  const InteractionConstraints* interactions_ = nullptr;
  std::vector<uint8_t> features_;
  std::vector<int> tiles_;
};

class Search {
 public:
  virtual ~Search() = default;

  // Rows that the next tree, or the next layer, is grown on.
  virtual const RowSample& sample() const = 0;
  // Width of a node's output gains.
  virtual int n_outputs() const = 0;
  // A new tree, of which there is the root. The scope stays valid until the tree is finished.
  virtual void start(const TreeContext& scope, const SearchNode& root) = 0;
  // Finds the best splits of the root, or of children in pairs (left, right). `renewed`:
  // derivatives, or the rows of nodes, have changed since their parents were looked at, so that
  // nothing of a parent's sums holds.
  virtual void evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                        std::vector<SplitInfo>& splits) = 0;
  // The choice found for `parent` is taken: `left` and `right` are its children. Writes what each
  // output adds to gain * n_outputs.
  virtual void split(int32_t parent, const SearchNode& left, const SearchNode& right,
                     float* output_gain) = 0;
  // Summed Hessian of the root after `start`, or of a node that the last `split` made; mean over
  // outputs.
  virtual double cover(int32_t node) const = 0;
};

}  // namespace polyleaf
