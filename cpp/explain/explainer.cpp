#include "explain/explainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "base/parallel.h"

namespace polyleaf {
namespace {

// Maximum floats of the tables of a group; with a tile they should fit the L2 cache.
constexpr int64_t kGroupFloats = 1 << 19, kGroupFloatsOfPairs = 1 << 22;
constexpr int32_t kGroupBits = 8;  // a leaf counts as having at most this many features
// Target and maximum number of floats of a tile.
constexpr int64_t kTileFloats = 1 << 18;
constexpr int64_t kMaxTileFloats = 1 << 23;

uint64_t make_pair_key(int32_t i, int32_t j) {
  return static_cast<uint64_t>(std::min(i, j)) << 32 | static_cast<uint32_t>(std::max(i, j));
}

int64_t count_tiles(int64_t n_rows) {
  return Block::count(n_rows, kTileRows);
}

// Call visit(index of a value of the leaf, position of its output) for its values of the chunk. The
// position is that in the chunk, or 0 for one output, whose value has the index `column`.
template <class Visit>
void visit_values(const LeafFunction& leaf, int32_t output, int32_t column,
                  const OutputChunk& chunk, const Visit& visit) {
  if (leaf.lists_outputs) {
    for (int64_t i = 0; i < leaf.n_values; ++i)
      if (const int32_t k = chunk.output_position[leaf.outputs[i]]; k >= 0) visit(i, k);
  } else if (output >= 0) {
    visit(column, 0);
  } else {
    for (int32_t k = 0; k < chunk.n; ++k) visit(chunk.outputs[k], k);
  }
}

}  // namespace

// One tree, or one of the outputs that it lists.
struct Explainer::Part {
  int32_t number;  // of the tree in the range
  std::shared_ptr<const Tree> tree;
  std::shared_ptr<const LeafBlock> leaves;
  int32_t output, column;  // the column of the leaves for the output; -1: all outputs
  std::shared_ptr<const std::vector<LeafPaths>> paths;
  std::vector<double> probability;  // probability of each leaf id
  // Leaf of each background row, for linear leaves with a background.
  std::vector<int32_t> background_leaf;

  bool reads_features() const { return leaves->kind().reads_features; }
};

// A group of leaves of one tree, ready to be summed.
struct Explainer::Unit {
  const Part* part;
  const LeafPaths* paths;
  LeafSlots slots;
  std::unique_ptr<LeafShapCoefficients> shap_coefficients;
  LinearBackground background;
};

// A slot is a feature (second: -1) or a pair of features.
struct Explainer::Group {
  struct Slot {
    int32_t first, second;            // columns
    int32_t first_slot, second_slot;  // slots of the single features, for a pair
  };
  std::vector<Unit> units;
  std::vector<Slot> slots;
};

// Arguments of one call of `explain`.
struct Explainer::Request {
  const CodeMatrix& codes;
  const FeatureMatrix& features;
  const ExplainedOutputs& outputs;
  bool interactions;
  float* out;
  const Context& context;
};

// Scratch memory of one thread.
struct Explainer::Worker {
  CoefficientScratch shap_coefficients;
  ShapScratch leaf_values;
  Buffer<uint8_t> codes;
  Buffer<float> features, coefficients, tile;
};

Explainer::~Explainer() = default;

Explainer::Explainer(const Forest& forest, TreeRange range) : n_outputs_(forest.n_outputs()) {
  read(forest, range);
  for (Part& part : parts_) {
    part.probability.assign(part.leaves->n_leaves(), 0.0);
    for (const LeafPaths& paths : *part.paths)
      for (const LeafPath& path : paths.leaves) {
        double& probability = part.probability[path.leaf] = 1.0;
        for (int32_t j = 0; j < path.n_features; ++j) probability *= paths.shares[path.first + j];
      }
  }
  prepare();
}

Explainer::Explainer(const Forest& forest, TreeRange range, const CodeMatrix& background,
                     const FeatureMatrix& features, const Context& context)
    : n_outputs_(forest.n_outputs()), has_background_(true) {
  if (background.n_rows < 1) throw std::invalid_argument("The background has no rows.");
  read(forest, range);
  check(background, features);
  background_ = make_tiles(background);
  config_.background = &background_;
  find_background_leaves(forest, range, background, features, context);
  prepare();
}

void Explainer::read(const Forest& forest, TreeRange range) {
  const std::vector<int32_t> splits = forest.split_features(range),
                             regressors = forest.regressors(range);
  std::set_union(splits.begin(), splits.end(), regressors.begin(), regressors.end(),
                 std::back_inserter(features_));
  n_features_ = features_.empty() ? 0 : features_.back() + 1;
  feature_column_.assign(n_features_, -1);
  for (size_t c = 0; c < features_.size(); ++c)
    feature_column_[features_[c]] = static_cast<int32_t>(c);
  for (int32_t f : regressors) regressors_.push_back(feature_column_[f]);
  int32_t number = 0;
  for (ForestPart& part : forest.parts(range)) {
    const auto paths = std::make_shared<const std::vector<LeafPaths>>(
        make_leaf_paths(*part.tree, part.leaves->view(), feature_column_));
    if (part.leaves->kind().lists_outputs) part.outputs.clear();  // leaves list their own outputs
    if (part.outputs.empty())
      parts_.push_back({number, part.tree, part.leaves, -1, 0, paths, {}, {}});
    for (size_t j = 0; j < part.outputs.size(); ++j)
      parts_.push_back({number,
                        part.tree,
                        part.leaves,
                        part.outputs[j],
                        static_cast<int32_t>(j),
                        paths,
                        {},
                        {}});
    ++number;
  }
}

void Explainer::prepare() {
  int32_t max_features = 0;
  for (const Part& part : parts_)
    for (const LeafPaths& paths : *part.paths)
      max_features = std::max(max_features, paths.max_features());
  if (has_background_ && max_features > kMaxPatternFeatures)
    throw std::invalid_argument("A leaf lies behind splits on " + std::to_string(max_features) +
                                " features; against a background " +
                                std::to_string(kMaxPatternFeatures) +
                                " are the most. Explain without one.");
  config_.prepare(max_features);
}

void Explainer::check(const CodeMatrix& codes, const FeatureMatrix& features) const {
  if (codes.n_features < n_features_)
    throw std::invalid_argument("The codes have " + std::to_string(codes.n_features) +
                                " features, but the trees read " + std::to_string(n_features_) +
                                ".");
  if (!regressors_.empty())
    check_features(features, features_[regressors_.back()] + 1, codes.n_rows);
}

void Explainer::copy_codes(const CodeMatrix& codes, int64_t row, int n, uint8_t* to) const {
  for (int32_t f : features_) {
    std::copy_n(codes.data + f * codes.n_rows + row, n, to);
    std::fill(to + n, to + kTileRows, uint8_t{0});
    to += kTileRows;
  }
}

void Explainer::copy_features(const FeatureMatrix& features, int64_t row, int n, float* to) const {
  for (int32_t c : regressors_) {
    float* column = to + int64_t{c} * kTileRows;
    std::copy_n(features.data + features_[c] * features.n_rows + row, n, column);
    std::fill(column + n, column + kTileRows, 0.0f);
  }
}

CodeTiles Explainer::make_tiles(const CodeMatrix& codes) const {
  CodeTiles tiles;
  tiles.n_columns = static_cast<int64_t>(features_.size());
  tiles.n_rows = codes.n_rows;
  const int64_t size = tiles.n_columns * kTileRows;
  tiles.codes.reserve(static_cast<size_t>(count_tiles(codes.n_rows) * size));
  for (int64_t t = 0; t < count_tiles(codes.n_rows); ++t) {
    const Block rows(codes.n_rows, kTileRows, t);
    copy_codes(codes, rows.begin, static_cast<int>(rows.end - rows.begin),
               tiles.codes.data() + t * size);
  }
  return tiles;
}

void Explainer::find_background_leaves(const Forest& forest, TreeRange range,
                                       const CodeMatrix& background, const FeatureMatrix& features,
                                       const Context& context) {
  for (int32_t c : regressors_) {
    const float* from = features.data + features_[c] * features.n_rows;
    background_features_.insert(background_features_.end(), from, from + background.n_rows);
  }
  std::vector<int32_t> leaves(background.n_rows);
  for (Part& part : parts_) {
    const int32_t tree = range.first + part.number;
    forest.apply(background, leaves.data(), {tree, tree + 1}, context);
    part.probability.assign(part.leaves->n_leaves(), 0.0);
    for (int32_t leaf : leaves) part.probability[leaf] += 1.0;
    for (double& probability : part.probability)
      probability /= static_cast<double>(background.n_rows);
    if (part.reads_features()) part.background_leaf = leaves;
  }
}

// Return the row of each column in `background_features_`; -1: none.
std::vector<int64_t> Explainer::number_regressors() const {
  std::vector<int64_t> row(features_.size(), -1);
  for (size_t i = 0; i < regressors_.size(); ++i) row[regressors_[i]] = static_cast<int64_t>(i);
  return row;
}

// Add the mean leaf values of the background rows.
void Explainer::add_background_means(const Part& part, const OutputChunk& chunk,
                                     double* expected) const {
  const LeafView& view = part.leaves->view();
  const std::vector<int64_t> regressor_row = number_regressors();
  const int64_t n_rows = background_.n_rows;
  for (int64_t r = 0; r < n_rows; ++r) {
    const LeafFunction leaf = view.kind->function(view, part.background_leaf[r]);
    visit_values(leaf, part.output, part.column, chunk, [&](int64_t at, int32_t k) {
      double value = leaf.values[at];
      for (int64_t e = 0; e < leaf.n_regressors; ++e) {
        const float x =
            background_features_[regressor_row[feature_column_[leaf.regressors[e]]] * n_rows + r];
        if (!std::isnan(x))
          value +=
              double{leaf.weights[e * leaf.stride + at]} * (double{x} - double{leaf.centre[e]});
      }
      expected[k] += std::min(std::max(value, double{leaf.lower[at]}), double{leaf.upper[at]}) /
                     static_cast<double>(n_rows);
    });
  }
}

// Return the expected value of each output of the chunk, or of the part's only output.
std::vector<double> Explainer::compute_expected(const Part& part, const OutputChunk& chunk) const {
  const LeafView& view = part.leaves->view();
  std::vector<double> expected(part.output < 0 ? chunk.n : 1, 0.0);
  if (part.output >= 0 && chunk.output_position[part.output] < 0) return expected;
  if (!part.background_leaf.empty()) {
    add_background_means(part, chunk, expected.data());
    return expected;
  }
  for (size_t i = 0; i < part.probability.size(); ++i) {
    const double probability = part.probability[i];
    const LeafFunction leaf = view.kind->function(view, static_cast<int64_t>(i));
    visit_values(leaf, part.output, part.column, chunk, [&](int64_t at, int32_t k) {
      expected[k] += probability * leaf.value_at_centre(at);
    });
  }
  return expected;
}

void Explainer::expected_values(const ExplainedOutputs& outputs, double* expected) const {
  std::vector<int32_t> output_position(n_outputs_, -1);
  for (int64_t k = 0; k < outputs.n; ++k)
    output_position[outputs.outputs[k]] = static_cast<int32_t>(k);
  const OutputChunk chunk{outputs.outputs, static_cast<int32_t>(outputs.n), output_position.data(),
                          nullptr};
  std::fill_n(expected, outputs.n, 0.0);
  for (const Part& part : parts_) {
    const std::vector<double> tree_expected = compute_expected(part, chunk);
    if (part.output < 0)
      for (int64_t k = 0; k < outputs.n; ++k) expected[k] += tree_expected[k];
    else if (output_position[part.output] >= 0)
      expected[output_position[part.output]] += tree_expected[0];
  }
}

LinearBackground Explainer::make_linear_background(const Part& part, const LeafPaths& paths) const {
  const ShapKernels& kernels = POLYLEAF_SELECT(shap_kernels);
  const LeafView& view = part.leaves->view();
  const std::vector<int64_t> regressor_row = number_regressors();
  LinearBackground background;
  background.n_rows = background_.n_rows;
  background.patterns.resize(paths.leaves.size());
  background.shifts.resize(paths.leaves.size());
  CoefficientScratch scratch;
  scratch.reserve(paths);
  for (int64_t row = 0; row < background_.n_rows; row += kTileRows) {
    const int n = static_cast<int>(std::min<int64_t>(kTileRows, background_.n_rows - row));
    kernels.decide(paths.splits.data(), static_cast<int32_t>(paths.splits.size()),
                   background_.tile(row / kTileRows), scratch.decisions.data());
    for (size_t l = 0; l < paths.leaves.size(); ++l) {
      const LeafPath& path = paths.leaves[l];
      const LeafFunction leaf = view.kind->function(view, path.leaf);
      kernels.hold(paths.tests.data(), paths.test_begin.data() + path.first, path.n_features,
                   scratch.decisions.data(), scratch.held.data());
      for (int r = 0; r < n; ++r) {
        background.patterns[l].push_back(get_pattern(scratch.held.data(), path.n_features, r));
        for (int32_t e = 0; e < path.n_entries; ++e) {
          const int32_t column = paths.columns[path.first + paths.regressors[path.first_entry + e]];
          const float x =
              background_features_[regressor_row[column] * background_.n_rows + row + r];
          background.shifts[l].push_back(std::isnan(x) ? 0.0 : double{x} - double{leaf.centre[e]});
        }
      }
    }
  }
  return background;
}

std::vector<Explainer::Group> Explainer::groups(bool pairs) const {
  std::vector<Group> all;
  int64_t size = 0;
  for (const Part& part : parts_)
    for (const LeafPaths& paths : *part.paths) {
      int64_t floats = 0;
      for (const LeafPath& path : paths.leaves)
        floats += n_terms(path.n_features, pairs) *
                  table_step(std::min(path.n_features, kGroupBits)) * (1 + path.n_entries);
      if (all.empty() || size + floats > (pairs ? kGroupFloatsOfPairs : kGroupFloats)) {
        all.emplace_back();
        size = 0;
      }
      all.back().units.push_back({&part, &paths, {}, nullptr, {}});
      size += floats;
    }
  return all;
}

void Explainer::assign_slots(Group& group, bool pairs) const {
  std::vector<int32_t> slot_index(features_.size(), -1);
  std::unordered_map<uint64_t, int32_t> slot_of_pair;
  const auto single = [&](int32_t column) {
    if (slot_index[column] < 0) {
      slot_index[column] = static_cast<int32_t>(group.slots.size());
      group.slots.push_back({column, -1, -1, -1});
    }
    return slot_index[column];
  };
  std::vector<int32_t> term_slots;
  for (Unit& unit : group.units)
    for (const LeafPath& path : unit.paths->leaves) {
      const int32_t* columns = unit.paths->columns.data() + path.first;
      term_slots.clear();
      for (int32_t i = 0; i < path.n_features; ++i) term_slots.push_back(single(columns[i]));
      for (int32_t i = 0; pairs && i < path.n_features; ++i)
        for (int32_t j = i + 1; j < path.n_features; ++j) {
          const auto [at, is_new] = slot_of_pair.try_emplace(
              make_pair_key(columns[i], columns[j]), static_cast<int32_t>(group.slots.size()));
          if (is_new) group.slots.push_back({columns[i], columns[j], term_slots[i], term_slots[j]});
          term_slots.push_back(at->second);
        }
      unit.slots.add_leaf(term_slots);
    }
}

void Explainer::explain(const CodeMatrix& codes, const FeatureMatrix& features,
                        const ExplainedOutputs& outputs, bool interactions, float* out,
                        const Context& context) const {
  check(codes, features);
  if (codes.n_rows == 0 || outputs.n == 0) return;
  const Request request{codes, features, outputs, interactions, out, context};
  for (Group& group : groups(interactions)) {
    assign_slots(group, interactions);
    explain_group(group, request);
  }
}

void Explainer::explain_group(Group& group, const Request& request) const {
  const auto n_units = static_cast<int64_t>(group.units.size()),
             n_slots = static_cast<int64_t>(group.slots.size());
  if (n_slots == 0) return;  // all trees are single leaves
  parallel_for(request.context, n_units, [&](int64_t u, int) {
    Unit& unit = group.units[u];
    const bool linear = unit.part->reads_features();
    if (linear && has_background_) {
      unit.background = make_linear_background(*unit.part, *unit.paths);
      return;
    }
    unit.shap_coefficients = std::make_unique<LeafShapCoefficients>(
        *unit.paths, config_, linear, request.interactions, request.codes.n_rows);
    unit.slots.sort(*unit.shap_coefficients, static_cast<int32_t>(n_slots));
  });
  int tile_rows = kTileRows;
  const int64_t n = request.outputs.n;
  while (tile_rows > kRowStep && n_slots * std::min<int64_t>(n, 16) * tile_rows > kTileFloats)
    tile_rows /= 2;
  int64_t chunk_size = std::max<int64_t>(16, kTileFloats / (n_slots * tile_rows) / 16 * 16);
  chunk_size =
      std::clamp<int64_t>(kMaxTileFloats / (n_slots * kTileRows), 1, std::min(chunk_size, n));
  std::vector<int32_t> output_position(n_outputs_, -1);
  for (int64_t first = 0; first < n; first += chunk_size) {
    const auto size = static_cast<int32_t>(std::min(chunk_size, n - first));
    for (int32_t k = 0; k < size; ++k) output_position[request.outputs.outputs[first + k]] = k;
    const OutputChunk chunk{
        request.outputs.outputs + first, size, output_position.data(),
        request.outputs.scale == nullptr ? nullptr : request.outputs.scale + first};
    std::vector<std::unique_ptr<ShapLeafValues>> made(n_units);
    parallel_for(request.context, n_units, [&](int64_t u, int) {
      const Part& part = *group.units[u].part;
      made[u] =
          std::make_unique<ShapLeafValues>(*group.units[u].paths, part.leaves->view(), part.output,
                                           part.column, chunk, compute_expected(part, chunk));
    });
    std::vector<ShapLeafValues> leaf_values;
    for (auto& leaf_value : made) leaf_values.push_back(std::move(*leaf_value));
    explain_chunk(group, leaf_values, request, first, size, tile_rows);
    for (int32_t k = 0; k < size; ++k) output_position[request.outputs.outputs[first + k]] = -1;
  }
}

void Explainer::explain_chunk(const Group& group, const std::vector<ShapLeafValues>& leaf_values,
                              const Request& request, int64_t first, int32_t n,
                              int tile_rows) const {
  const int64_t n_tiles = Block::count(request.codes.n_rows, tile_rows);
  const Context at_work = request.context.limit_threads(n_tiles);
  std::vector<Worker> context(at_work.n_threads);
  const size_t size = group.slots.size() * static_cast<size_t>(n) * kTileRows;
  parallel_for(at_work, n_tiles, [&](int64_t task, int thread) {
    Worker& worker = context[thread];
    const Block rows(request.codes.n_rows, tile_rows, task);
    const auto n_rows = static_cast<int>(rows.end - rows.begin);
    worker.tile.reserve(size);
    std::fill_n(worker.tile.data(), size, 0.0f);
    const ShapTile tile{worker.tile.data(), n, (n_rows + kRowStep - 1) / kRowStep * kRowStep};
    explain_tile(group, leaf_values, request, rows.begin, n_rows, worker, tile);
    write_tile(group, request, rows.begin, n_rows, first, tile);
  });
}

void Explainer::explain_tile(const Group& group, const std::vector<ShapLeafValues>& leaf_values,
                             const Request& request, int64_t row, int n_rows, Worker& worker,
                             const ShapTile& tile) const {
  const ShapKernels& kernels = POLYLEAF_SELECT(shap_kernels);
  worker.codes.reserve(features_.size() * kTileRows);
  copy_codes(request.codes, row, n_rows, worker.codes.data());
  if (!regressors_.empty()) {
    worker.features.reserve(features_.size() * kTileRows);
    copy_features(request.features, row, n_rows, worker.features.data());
  }
  const TileRows rows{worker.features.data(), n_rows};
  for (size_t u = 0; u < group.units.size(); ++u) {
    const Unit& unit = group.units[u];
    const LeafPaths& paths = *unit.paths;
    const bool linear = unit.part->reads_features();
    worker.shap_coefficients.reserve(paths);
    if (unit.shap_coefficients != nullptr)
      worker.coefficients.reserve(static_cast<size_t>(unit.shap_coefficients->n_rows()) *
                                  kTileRows);
    kernels.decide(paths.splits.data(), static_cast<int32_t>(paths.splits.size()),
                   worker.codes.data(), worker.shap_coefficients.decisions.data());
    for (size_t i = 0; i < paths.leaves.size(); ++i) {
      const auto l = static_cast<int32_t>(i);
      const uint8_t* held = worker.shap_coefficients.held.data();
      kernels.hold(paths.tests.data(), paths.test_begin.data() + paths.leaves[i].first,
                   paths.leaves[i].n_features, worker.shap_coefficients.decisions.data(),
                   worker.shap_coefficients.held.data());
      if (unit.shap_coefficients == nullptr) {
        leaf_values[u].add_interventional(l, unit.background, config_, unit.slots,
                                          request.interactions, held, rows, worker.leaf_values,
                                          tile);
        continue;
      }
      unit.shap_coefficients->write(l, tile.n_rows, worker.shap_coefficients,
                                    worker.coefficients.data());
      if (linear)
        leaf_values[u].add_slopes(l, *unit.shap_coefficients, config_, unit.slots,
                                  request.interactions, held, rows, worker.coefficients.data(),
                                  worker.leaf_values, tile);
    }
    if (unit.shap_coefficients != nullptr)
      leaf_values[u].add(unit.slots, worker.coefficients.data(), tile);
  }
}

void Explainer::write_tile(const Group& group, const Request& request, int64_t row, int n_rows,
                           int64_t first, const ShapTile& tile) const {
  const ShapKernels& kernels = POLYLEAF_SELECT(shap_kernels);
  const int64_t F = request.codes.n_features, K = request.outputs.n,
                size = int64_t{tile.n_outputs} * kTileRows;
  const int64_t row_step = (request.interactions ? F * F : F) * K;
  float* out = request.out + row * row_step + first;
  // Half of each interaction is stored on either side and is subtracted from the main effects.
  for (size_t s = 0; s < group.slots.size(); ++s) {
    const Group::Slot& slot = group.slots[s];
    if (slot.second < 0) continue;
    float* pair = tile.at(static_cast<int32_t>(s), 0);
    float *one = tile.at(slot.first_slot, 0), *other = tile.at(slot.second_slot, 0);
    for (int64_t i = 0; i < size; ++i) {
      pair[i] *= 0.5f;
      one[i] -= pair[i];
      other[i] -= pair[i];
    }
    const int64_t i = features_[slot.first], j = features_[slot.second];
    kernels.write(pair, tile.n_outputs, n_rows, out + (i * F + j) * K, row_step);
    kernels.write(pair, tile.n_outputs, n_rows, out + (j * F + i) * K, row_step);
  }
  for (size_t s = 0; s < group.slots.size(); ++s) {
    const Group::Slot& slot = group.slots[s];
    if (slot.second >= 0) continue;
    const int64_t i = features_[slot.first];
    kernels.write(tile.at(static_cast<int32_t>(s), 0), tile.n_outputs, n_rows,
                  out + (request.interactions ? i * F + i : i) * K, row_step);
  }
}

}  // namespace polyleaf
