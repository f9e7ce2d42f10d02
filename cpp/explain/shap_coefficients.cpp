#include "explain/shap_coefficients.h"

#include <algorithm>
#include <cmath>

namespace polyleaf {
namespace {

// The parent of a node.
struct Branch {
  int32_t parent = -1;
  bool left = false;
  double share = 1.0;  // share of what reaches both children
};

// Return the share of the left child: of the rows, or of the cover of models of other libraries,
// whose counts are 0.
double share_of_left(const Tree& tree, int32_t left, int32_t right) {
  const double rows =
      static_cast<double>(tree.count[left]) + static_cast<double>(tree.count[right]);
  if (rows > 0.0) return static_cast<double>(tree.count[left]) / rows;
  const double cover = tree.cover[left] + tree.cover[right];
  return tree.cover[left] >= 0.0 && tree.cover[right] >= 0.0 && cover > 0.0 && std::isfinite(cover)
             ? tree.cover[left] / cover
             : 0.5;
}

std::vector<Branch> find_branches(const Tree& tree) {
  std::vector<Branch> branches(tree.n_nodes());
  for (int32_t node = 0; node < tree.n_nodes(); ++node) {
    if (tree.feature[node] < 0) continue;
    const int32_t left = tree.left[node], right = tree.right[node];
    const double share = share_of_left(tree, left, right);
    branches[left] = {node, true, share};
    branches[right] = {node, false, 1.0 - share};
  }
  return branches;
}

class PathWriter {
 public:
  PathWriter(const Tree& tree, const std::vector<int32_t>& feature_column, LeafPaths& paths)
      : tree_(tree),
        feature_column_(feature_column),
        paths_(paths),
        split_ids_(tree.n_nodes(), -1) {
    paths_.test_begin.push_back(0);
  }

  void add_leaf(int32_t node, const std::vector<Branch>& branches, const LeafView& leaves) {
    LeafPath path{tree_.leaf[node], static_cast<int32_t>(paths_.columns.size()), 0,
                  static_cast<int32_t>(paths_.regressors.size()), 0};
    climb(node, branches);
    for (size_t i = 0; i < steps_.size(); ++i)
      if (!steps_[i].used) add_feature(i, path);
    add_regressors(leaves.kind->function(leaves, path.leaf), path);
    paths_.leaves.push_back(path);
  }

 private:
  struct Step {
    int32_t node, column;
    Branch branch;
    bool used;
  };

  // Collect the splits above a leaf, from the root on.
  void climb(int32_t node, const std::vector<Branch>& branches) {
    steps_.clear();
    for (; branches[node].parent >= 0; node = branches[node].parent) {
      const int32_t parent = branches[node].parent;
      steps_.push_back({parent, feature_column_[tree_.feature[parent]], branches[node], false});
    }
    std::reverse(steps_.begin(), steps_.end());
  }

  // Add the feature of a step with all later steps on it.
  void add_feature(size_t from, LeafPath& path) {
    double share = 1.0;
    for (size_t i = from; i < steps_.size(); ++i) {
      if (steps_[i].column != steps_[from].column) continue;
      steps_[i].used = true;
      share *= steps_[i].branch.share;
      paths_.tests.push_back(
          {add_split(steps_[i].node), static_cast<uint8_t>(steps_[i].branch.left ? 0 : 255)});
    }
    end_feature(steps_[from].column, share, path);
  }

  void end_feature(int32_t column, double share, LeafPath& path) {
    paths_.columns.push_back(column);
    paths_.shares.push_back(share);
    paths_.test_begin.push_back(static_cast<int32_t>(paths_.tests.size()));
    ++path.n_features;
  }

  void add_regressors(const LeafFunction& leaf, LeafPath& path) {
    for (; path.n_entries < leaf.n_regressors; ++path.n_entries) {
      const int32_t column = feature_column_[leaf.regressors[path.n_entries]];
      const auto begin = paths_.columns.begin() + path.first;
      const auto at = std::find(begin, paths_.columns.end(), column);
      paths_.regressors.push_back(static_cast<int32_t>(at - begin));
      if (at == paths_.columns.end()) end_feature(column, 1.0, path);
    }
  }

  int32_t add_split(int32_t node) {
    if (split_ids_[node] >= 0) return split_ids_[node];
    // As in prediction, shift 1 wraps the missing code 255 to 0.
    const uint8_t shift = tree_.missing_left[node];
    const int32_t cut = tree_.category_set[node] < 0 ? tree_.threshold[node] + shift : 0;
    paths_.splits.push_back(
        {feature_column_[tree_.feature[node]], static_cast<uint8_t>(cut), shift, nullptr});
    if (tree_.category_set[node] >= 0) {
      std::array<uint8_t, 256> left;
      for (int code = 0; code < 256; ++code)
        left[code] = tree_.goes_left(node, code) ? uint8_t{255} : uint8_t{0};
      paths_.categories.push_back(left);
      categorical_.push_back(static_cast<int32_t>(paths_.splits.size()) - 1);
    }
    return split_ids_[node] = static_cast<int32_t>(paths_.splits.size()) - 1;
  }

 public:
  // Set the pointers to category tables; call after all leaves were added.
  void link_categories() {
    for (size_t i = 0; i < categorical_.size(); ++i)
      paths_.splits[categorical_[i]].left = paths_.categories[i].data();
  }

 private:
  const Tree& tree_;
  const std::vector<int32_t>& feature_column_;
  LeafPaths& paths_;
  std::vector<int32_t> split_ids_;  // split id of each node; -1: none yet
  std::vector<int32_t> categorical_;
  std::vector<Step> steps_;
};

// In path-dependent mode a table only caches computed values; for longer paths it would not fit the
// cache.
constexpr int32_t kShareTableBits = 8;
// More points would change nothing: the integrands are products of numbers between 0 and 1.
constexpr int32_t kMaxQuadraturePoints = 32;

// Rows that enumerate all patterns of up to kShareTableBits features.
class AllPatterns {
 public:
  AllPatterns() {
    for (int32_t j = 0; j < kShareTableBits; ++j)
      for (int p = 0; p < kSize; ++p) held_[j][p] = p >> j & 1 ? 255 : 0;
  }
  const uint8_t* held() const { return held_[0]; }
  static constexpr int kSize = 1 << kShareTableBits;

 private:
  uint8_t held_[kShareTableBits][kSize];
};

int32_t count_points(int32_t n_features) {
  return std::min((n_features + 1) / 2, kMaxQuadraturePoints);
}

}  // namespace

int32_t LeafPaths::max_features() const {
  int32_t largest = 0;
  for (const LeafPath& path : leaves) largest = std::max(largest, path.n_features);
  return largest;
}

std::vector<LeafPaths> make_leaf_paths(const Tree& tree, const LeafView& leaves,
                                       const std::vector<int32_t>& feature_column) {
  const std::vector<Branch> branches = find_branches(tree);
  std::vector<int32_t> nodes;
  for (int32_t node = 0; node < tree.n_nodes(); ++node)
    if (tree.feature[node] < 0) nodes.push_back(node);
  std::vector<LeafPaths> all((nodes.size() + kLeafGroupSize - 1) / kLeafGroupSize);
  for (size_t u = 0; u < all.size(); ++u) {
    PathWriter writer(tree, feature_column, all[u]);
    const size_t end = std::min(nodes.size(), (u + 1) * kLeafGroupSize);
    for (size_t i = u * kLeafGroupSize; i < end; ++i) writer.add_leaf(nodes[i], branches, leaves);
    writer.link_categories();
  }
  return all;
}

void ShapConfig::prepare(int32_t max_features) {
  if (background == nullptr)
    quadratures = gauss_legendre(count_points(max_features));
  else
    weights = std::make_unique<ShapleyWeights>(max_features);
}

const Quadrature& ShapConfig::quadrature(int32_t n_features) const {
  return quadratures[count_points(n_features)];
}

void CoefficientScratch::reserve(const LeafPaths& paths) {
  const int64_t max_features = paths.max_features();
  decisions.reserve(paths.splits.size() * kTileRows);
  held.reserve(static_cast<size_t>(max_features) * kTileRows);
  integration.reserve(static_cast<size_t>(
      integration_scratch(max_features, count_points(static_cast<int32_t>(max_features)))));
}

uint64_t get_pattern(const uint8_t* held, int32_t n_features, int r) {
  uint64_t pattern = 0;
  for (int32_t j = 0; j < n_features; ++j)
    pattern |= static_cast<uint64_t>(held[static_cast<int64_t>(j) * kTileRows + r] & 1) << j;
  return pattern;
}

LeafShapCoefficients::LeafShapCoefficients(const LeafPaths& paths, const ShapConfig& config,
                                           bool linear, bool pairs, int64_t n_rows)
    : paths_(paths), config_(config), pairs_(pairs) {
  if (config.background != nullptr) count_background();
  const auto n = static_cast<int32_t>(paths.leaves.size());
  int64_t size = 0;
  for (int32_t l = 0; l < n; ++l) {
    add_leaf(l, linear, n_rows);
    Leaf& leaf = leaves_.back();
    if (leaf.table < 0) continue;
    leaf.table = size;
    size += leaf.n_products * leaf.n_terms * table_step(paths.leaves[l].n_features);
  }
  tables_.reserve(static_cast<size_t>(size));
  for (int32_t l = 0; l < n; ++l)
    if (leaves_[l].table >= 0) fill_tables(l);
}

void LeafShapCoefficients::count_background() {
  const ShapKernels& kernels = POLYLEAF_SELECT(shap_kernels);
  const CodeTiles& tiles = *config_.background;
  for (const LeafPath& path : paths_.leaves) counts_.emplace_back(path.n_features);
  CoefficientScratch scratch;
  scratch.reserve(paths_);
  for (int64_t row = 0; row < tiles.n_rows; row += kTileRows) {
    const int n = static_cast<int>(std::min<int64_t>(kTileRows, tiles.n_rows - row));
    kernels.decide(paths_.splits.data(), static_cast<int32_t>(paths_.splits.size()),
                   tiles.tile(row / kTileRows), scratch.decisions.data());
    for (size_t l = 0; l < paths_.leaves.size(); ++l) {
      const LeafPath& path = paths_.leaves[l];
      uint8_t* held = scratch.held.data();
      kernels.hold(paths_.tests.data(), paths_.test_begin.data() + path.first, path.n_features,
                   scratch.decisions.data(), held);
      if (path.n_features <= kTableBits) {
        kernels.encode_patterns(held, path.n_features, scratch.patterns);
        for (int r = 0; r < n; ++r) counts_[l].add(static_cast<uint64_t>(scratch.patterns[r]));
      } else {
        for (int r = 0; r < n; ++r) counts_[l].add(get_pattern(held, path.n_features, r));
      }
    }
  }
  for (PatternCounts& counts : counts_) counts.finish();
}

bool LeafShapCoefficients::uses_table(int32_t l, int64_t n_rows) const {
  const int64_t n = paths_.leaves[l].n_features;
  if (counts_.empty()) return n <= kShareTableBits && n_rows >= int64_t{2} << n;
  return n <= kTableBits && 4 * n_rows * counts_[l].n_patterns() >= n * n << n;
}

void LeafShapCoefficients::add_leaf(int32_t l, bool linear, int64_t n_rows) {
  const LeafPath& path = paths_.leaves[l];
  const int32_t n_products = linear ? 1 + path.n_entries : 1,
                terms = polyleaf::n_terms(path.n_features, pairs_);
  leaves_.push_back(
      {n_rows_, terms, n_products, path.n_features > 0 && uses_table(l, n_rows) ? 0 : -1});
  n_rows_ += n_products * terms;
  shares_begin_.push_back(static_cast<int64_t>(shares_.size()));
  for (int32_t g = 1; g < n_products; ++g) {
    const auto shares = paths_.shares.begin() + path.first;
    shares_.insert(shares_.end(), shares, shares + path.n_features);
    // If the regressor is unknown, its contribution is zero.
    *(shares_.end() - path.n_features + paths_.regressors[path.first_entry + g - 1]) = 0.0;
  }
}

PathProduct LeafShapCoefficients::path_product(int32_t l, int32_t g) const {
  const LeafPath& path = paths_.leaves[l];
  const Quadrature& rule = config_.quadrature(path.n_features);
  const double* shares = g == 0
                             ? paths_.shares.data() + path.first
                             : shares_.data() + shares_begin_[l] + int64_t{g - 1} * path.n_features;
  return {path.n_features,
          static_cast<int32_t>(rule.at.size()),
          shares,
          rule.at.data(),
          rule.weight.data(),
          pairs_};
}

void LeafShapCoefficients::fill_tables(int32_t l) {
  static const AllPatterns patterns;
  const Leaf& leaf = leaves_[l];
  const int32_t n = paths_.leaves[l].n_features;
  const int64_t step = table_step(n);
  if (!counts_.empty()) {
    std::fill_n(tables_.data() + leaf.table, leaf.n_terms * step, 0.0f);
    return counts_[l].fill_table(pairs_, *config_.weights, tables_.data() + leaf.table, step);
  }
  Buffer<double> scratch(static_cast<size_t>(integration_scratch(n, count_points(n))));
  for (int32_t g = 0; g < leaf.n_products; ++g)
    POLYLEAF_SELECT(shap_kernels)
        .integrate(path_product(l, g), patterns.held(), AllPatterns::kSize, static_cast<int>(step),
                   tables_.data() + leaf.table + g * leaf.n_terms * step, step, scratch.data());
}

void LeafShapCoefficients::walk_patterns(int32_t l, int n_rows, const uint8_t* held,
                                         float* coefficients) const {
  const int32_t n = paths_.leaves[l].n_features;
  for (int r = 0; r < n_rows; ++r)
    counts_[l].coefficients(get_pattern(held, n, r), pairs_, *config_.weights, coefficients + r,
                            kTileRows);
}

void LeafShapCoefficients::write(int32_t l, int n_rows, CoefficientScratch& scratch,
                                 float* coefficients) const {
  const ShapKernels& kernels = POLYLEAF_SELECT(shap_kernels);
  const Leaf& leaf = leaves_[l];
  const int32_t n = paths_.leaves[l].n_features;
  float* to = coefficients + int64_t{leaf.first_row} * kTileRows;
  if (leaf.table >= 0) {
    kernels.encode_patterns(scratch.held.data(), n, scratch.patterns);
    return kernels.look_up(tables_.data() + leaf.table, n, leaf.n_products * leaf.n_terms,
                           scratch.patterns, n_rows, to);
  }
  if (!counts_.empty()) return walk_patterns(l, n_rows, scratch.held.data(), to);
  for (int32_t g = 0; g < leaf.n_products; ++g)
    kernels.integrate(path_product(l, g), scratch.held.data(), kTileRows, n_rows,
                      to + int64_t{g} * leaf.n_terms * kTileRows, kTileRows,
                      scratch.integration.data());
}

}  // namespace polyleaf
