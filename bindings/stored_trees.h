// Construction of trees from flat NumPy arrays: one tree, or all trees of a file as a TreeSource.
#pragma once
#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/aligned_buffer.h"
#include "forest/forest.h"
#include "grower/tree.h"
#include "leaves/leaf_kinds.h"

namespace polyleaf {

inline void require_four_words(const Array2<const uint64_t>& categories) {
  if (categories.shape(1) != 4)
    throw std::invalid_argument("`categories` has " + std::to_string(categories.shape(1)) +
                                " columns; a category set has 4 words of 64 bits.");
}

// Category sets of a tree, and the output gains of its nodes (n_outputs per node).
struct SetsAndGains {
  const uint64_t* categories;
  size_t n_sets;
  const float* output_gain;
  int32_t n_outputs;
};

struct NodeArrays {
  Array1<const int32_t> feature, threshold;
  Array1<const bool> missing_left;
  Array1<const int32_t> left, right, leaf, category_set;
  Array1<const double> gain;
  Array1<const int64_t> count;
  Array1<const double> cover;

  // Read and check the tree of the nodes [begin, end), which are clipped to each array's length.
  void read(size_t begin, size_t end, const SetsAndGains& others, int32_t n_features,
            Tree& tree) const {
    const auto part = [&](const auto* data, size_t n, auto& to) {
      to.assign(data + std::min(begin, n), data + std::min(end, n));
    };
    part(feature.data(), feature.size(), tree.feature);
    part(threshold.data(), threshold.size(), tree.threshold);
    // Read as bytes: a bool array from a file may contain bytes other than 0 and 1.
    part(reinterpret_cast<const uint8_t*>(missing_left.data()), missing_left.size(),
         tree.missing_left);
    part(left.data(), left.size(), tree.left);
    part(right.data(), right.size(), tree.right);
    part(leaf.data(), leaf.size(), tree.leaf);
    part(category_set.data(), category_set.size(), tree.category_set);
    part(gain.data(), gain.size(), tree.gain);
    part(count.data(), count.size(), tree.count);
    part(cover.data(), cover.size(), tree.cover);
    tree.n_leaves = static_cast<int32_t>(std::count(tree.feature.begin(), tree.feature.end(), -1));
    tree.categories.resize(others.n_sets);
    if (others.n_sets > 0)
      std::memcpy(tree.categories.data(), others.categories, others.n_sets * sizeof(CategorySet));
    tree.output_gain.assign(others.output_gain,
                            others.output_gain + tree.feature.size() * others.n_outputs);
    tree.n_outputs = others.n_outputs;
    check_tree(tree, n_features);
  }
};

// Arrays of a file's trees besides the nodes. Tree t has offsets [t] to [t + 1].
struct StoredArrays {
  Array1<const int64_t> node_offsets;
  Array2<const uint64_t> categories;
  Array1<const int64_t> set_offsets;
  Array1<const int32_t> output, gain_outputs;
  Array1<const float> output_gain, values;
};

// Trees with dense leaves. Arrays are kept and trees are created on request; leaves are created at
// once.
class StoredTrees final : public TreeSource, public std::enable_shared_from_this<StoredTrees> {
 public:
  // Throw std::invalid_argument unless the arrays are consistent; nodes are checked when they
  // are read.
  StoredTrees(NodeArrays nodes, StoredArrays tree_arrays, int32_t n_outputs, int32_t n_features)
      : arrays_(new Arrays{std::move(nodes), std::move(tree_arrays)}), n_features_(n_features) {
    const StoredArrays& stored = arrays_->stored;
    const size_t n_trees = stored.output.size();
    require_four_words(stored.categories);
    require(stored.node_offsets.size() == n_trees + 1 && stored.set_offsets.size() == n_trees + 1 &&
                stored.gain_outputs.size() == n_trees,
            "There must be an output and offsets for each tree.");
    ArrayCursor gains(stored.output_gain.size(), "output_gain"),
        values(stored.values.size(), "values");
    std::vector<size_t> begin_of_values;
    begin_of_values.reserve(n_trees);
    gain_at_.reserve(n_trees);
    size_t n_floats = 0;
    for (size_t t = 0; t < n_trees; ++t) {
      const size_t n_nodes = get_node_range(t).second - get_node_range(t).first,
                   n_leaves = n_nodes / 2 + 1;
      get_range(stored.set_offsets, t, stored.categories.shape(0));
      const int32_t n_gains = stored.gain_outputs.data()[t];
      // A negative number of gains is rejected as too large.
      gain_at_.push_back(gains.next(n_nodes * (n_gains < 0 ? SIZE_MAX / (n_nodes + 1) : n_gains)));
      begin_of_values.push_back(values.next(n_leaves * count_columns(t, n_outputs)));
      n_floats += DenseLeaves::room(n_leaves, count_columns(t, n_outputs));
    }
    gains.end();
    values.end();
    value_memory_.reserve(n_floats);
    float* at = value_memory_.data();
    for (size_t t = 0; t < n_trees; ++t) {
      const size_t n_leaves = (get_node_range(t).second - get_node_range(t).first) / 2 + 1,
                   n = count_columns(t, n_outputs);
      leaves_.emplace_back(
          MatrixView<const float>(stored.values.data() + begin_of_values[t],
                                  static_cast<int64_t>(n_leaves), static_cast<int64_t>(n)),
          at);
      at += DenseLeaves::room(n_leaves, n);
    }
  }
  ~StoredTrees() override {
    nb::gil_scoped_acquire held;
    arrays_.reset();
  }

  int32_t n_trees() const override { return static_cast<int32_t>(leaves_.size()); }
  void read(int32_t t, Tree& tree) const override {
    const auto [begin, end] = get_node_range(t);
    const StoredArrays& stored = arrays_->stored;
    const auto [first_set, last_set] = get_range(stored.set_offsets, t, stored.categories.shape(0));
    const SetsAndGains others{stored.categories.data() + 4 * first_set, last_set - first_set,
                              stored.output_gain.data() + gain_at_[t],
                              stored.gain_outputs.data()[t]};
    arrays_->nodes.read(begin, end, others, n_features_, tree);
  }
  // The leaves share ownership of all trees.
  std::shared_ptr<const LeafBlock> leaves(int32_t t) const override {
    return {shared_from_this(), &leaves_[t]};
  }
  OutputList outputs(int32_t t) const override {
    const int32_t output = arrays_->stored.output.data()[t];
    return output == -1 ? OutputList{} : OutputList{output};
  }

 private:
  struct Arrays {
    NodeArrays nodes;
    StoredArrays stored;
  };
  // Cursor over a flat array that assigns entries to trees one after another.
  class ArrayCursor {
   public:
    ArrayCursor(size_t size, const char* name) : size_(size), name_(name) {}
    // Return the position of the next n entries.
    size_t next(size_t n) {
      const size_t begin = at_;
      if (n > size_ - begin)
        throw std::invalid_argument("The forest's array '" + name_ +
                                    "' is too short for its trees.");
      at_ += n;
      return begin;
    }
    void end() const {
      if (at_ != size_)
        throw std::invalid_argument("The forest's array '" + name_ +
                                    "' is longer than its trees require.");
    }

   private:
    size_t size_, at_ = 0;
    std::string name_;
  };

  static std::pair<size_t, size_t> get_range(const Array1<const int64_t>& offsets, size_t t,
                                             size_t size) {
    const int64_t begin = offsets.data()[t], end = offsets.data()[t + 1];
    require(0 <= begin && begin <= end && static_cast<size_t>(end) <= size,
            "Offsets must rise within their array.");
    return {static_cast<size_t>(begin), static_cast<size_t>(end)};
  }
  std::pair<size_t, size_t> get_node_range(size_t t) const {
    return get_range(arrays_->stored.node_offsets, t, arrays_->nodes.feature.size());
  }
  size_t count_columns(size_t t, int32_t n_outputs) const {
    return arrays_->stored.output.data()[t] < 0 ? static_cast<size_t>(n_outputs) : 1;
  }

  std::unique_ptr<Arrays> arrays_;
  int32_t n_features_;
  std::vector<size_t> gain_at_;
  Buffer<float> value_memory_;
  std::deque<DenseLeaves> leaves_;
};

}  // namespace polyleaf
