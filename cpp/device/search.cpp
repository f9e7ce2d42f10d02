#include "device/search.h"

#include <algorithm>
#include <cmath>

#include "base/packed.h"
#include "base/parallel.h"
#include "search/histogram_search.h"
#include "split_gain/full.h"
#include "split_gain/monotone_constraints.h"

namespace polyleaf {
namespace {

constexpr int kMinHistograms = 4;        // a pair of children and their parents
constexpr int kBlockLanes = 16;          // lanes per histogram block
constexpr int64_t kMinBlockRows = 2048;  // minimum rows per histogram block
constexpr int kHistogramThreads = 512;   // threads per histogram block
constexpr int kHistogramRounds = 4;      // histogram blocks per block that runs at a time
constexpr int kScanBlocks = 4;  // maximum scan blocks with scratch memory per multiprocessor
constexpr int64_t kMaxScanScratch = int64_t{1} << 28;  // maximum bytes of their scratch memory
constexpr size_t kHead = sizeof(on_device::NodeBest) / sizeof(int32_t);

// Number of outputs that are solved jointly.
int count_solved(const ChannelLayout& layout, const SplitConfig& split) {
  return split.block_size > 0 ? std::min(split.block_size, layout.n_outputs) : layout.n_outputs;
}

}  // namespace

DeviceSearch::DeviceSearch(const DeviceBins& bins, const Context& context)
    : bins_(bins),
      device_(bins.device()),
      context_(context),
      histograms_(device_),
      pieces_(device_),
      pairs_(device_),
      totals_(device_),
      found_(device_),
      nodes_at_(device_),
      allowed_(device_),
      best_(device_),
      scan_scratch_(device_),
      factors_(device_),
      own_sums_(device_),
      device_directions_(device_),
      low_(device_),
      high_(device_),
      lanes_(device_) {}

void DeviceSearch::set_monotone_constraints(MonotoneConstraints directions) {
  directions_ = std::move(directions);
  if (directions_.any())
    device_directions_.write(directions_.row(0),
                             static_cast<size_t>(bins_.host().n_features()) * directions_.stride());
}

void DeviceSearch::start(const TreeContext& tree_context, const SearchNode& root) {
  tree_context_ = &tree_context;
  rows_ = &tree_context.rows().device_rows();
  check_monotone_constraints(directions_, layout(), tree_context.config().split);
  allocate_histograms();
  if (!tree_context.config().factors.empty()) factors_.write(tree_context.config().factors);
  workspace_.reserve(workspace_floats(layout(), tree_context.config().split) + 16);
  nodes_.clear();
  add_node(root, channels_->totals(), OutputBounds(directions_.stride()));
  chance_ = tree_context.has_sorted_categories() ? channels_->categorical_overfit()
                                                 : CategoricalOverfit();
}

// Allocate as many histograms as a tree can use within the memory limit.
void DeviceSearch::allocate_histograms() {
  histogram_size_ = bins_.n_bins() * (layout().lanes + (layout().count_lane < 0 ? 1 : 0));
  const size_t bytes = static_cast<size_t>(histogram_size_) * sizeof(int32_t);
  const auto allowed =
      static_cast<int64_t>(tree_context_->config().histogram_memory / std::max<size_t>(bytes, 1));
  n_histograms_ =
      static_cast<int>(std::clamp<int64_t>(allowed, kMinHistograms, count_needed_histograms()));
  histograms_.reserve(static_cast<size_t>(histogram_size_) * n_histograms_);
  free_.clear();
  for (int i = n_histograms_; i-- > 0;) free_.push_back(i);
}

int DeviceSearch::count_needed_histograms() const {
  const GrowConfig& config = tree_context_->config();
  const int64_t by_depth =
      config.max_depth < 0 || config.max_depth > 20 ? 1 << 20 : 1 << config.max_depth;
  return static_cast<int>(
      std::max<int64_t>(kMinHistograms, std::min<int64_t>(by_depth, config.max_leaves) + 2));
}

DeviceSearch::Node& DeviceSearch::add_node(const SearchNode& at, std::vector<int32_t> totals,
                                           OutputBounds bounds) {
  nodes_.emplace_back();
  nodes_.back().at = at;
  nodes_.back().totals = std::move(totals);
  nodes_.back().value_bounds = std::move(bounds);
  return nodes_.back();
}

ScanNode DeviceSearch::scan_node(const Node& node) const {
  ScanNode scanned{&tree_context_->config().split,
                   &layout(),
                   channels_->gradient_step().data(),
                   channels_->hessian_step().data(),
                   node.totals.data(),
                   static_cast<int32_t>(node.at.count),
                   workspace_.data()};
  scanned.categorical_overfit = chance_;
  if (directions_.any()) scanned = scanned.constrain(directions_, node.value_bounds);
  return apply_gain_factors(scanned, tree_context_->config());
}

double DeviceSearch::cover(int32_t node) const {
  return scores().node_hessian(scan_node(nodes_[node]));
}

void DeviceSearch::split(int32_t parent, const SearchNode& left, const SearchNode& right,
                         float* output_gain) {
  const TileSplit& best = nodes_[parent].best;
  const ScanNode candidate = best.candidate_node(scan_node(nodes_[parent]), bins_.host());
  scores().output_terms(candidate, best.left.data(), best.left_count, output_gain);
  OutputBounds left_bounds, right_bounds;
  if (directions_.any())
    propagate_bounds(candidate, best.feature, best.left.data(), best.left_count, left_bounds,
                     right_bounds);
  std::vector<int32_t> left_totals = best.left, right_totals = nodes_[parent].totals;
  for (int j = 0; j < layout().lanes; ++j) right_totals[j] -= left_totals[j];
  const int parent_histogram = std::exchange(nodes_[parent].histogram, -1);
  add_node(left, std::move(left_totals), std::move(left_bounds)).histogram =
      parent_histogram;  // until the pair is evaluated
  add_node(right, std::move(right_totals), std::move(right_bounds));
}

void DeviceSearch::evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                            std::vector<SplitInfo>& splits) {
  splits.assign(nodes.size(), SplitInfo());
  for (const SearchNode& node : nodes) nodes_[node.id].at = node;
  renewed_ = renewed;
  if (renewed) discard_sums(nodes);
  const int32_t first_id = nodes[0].id;
  Batch batch;
  if (nodes.size() == 1) plan_single(first_id, batch);
  for (size_t p = 0; p + 1 < nodes.size(); p += 2) {
    if (!free_two_histograms(batch)) {
      run(batch, splits, first_id);
      batch = Batch();
      free_two_histograms(batch);
    }
    plan_pair(nodes[p].id, nodes[p + 1].id, batch);
  }
  run(batch, splits, first_id);
}

// Discard all sums after the derivatives have changed.
void DeviceSearch::discard_sums(const std::vector<SearchNode>& nodes) {
  for (const SearchNode& node : nodes) {
    const int histogram = std::exchange(nodes_[node.id].histogram, -1);
    if (histogram >= 0) free_.push_back(histogram);
    nodes_[node.id].value_bounds = OutputBounds(directions_.stride());
  }
  chance_ = tree_context_->has_sorted_categories() ? channels_->categorical_overfit()
                                                   : CategoricalOverfit();
}

// Free two histograms. The oldest are discarded, and their children are built from rows; those of
// the batch must be kept: then return false.
bool DeviceSearch::free_two_histograms(const Batch& batch) {
  const auto contains = [](const std::vector<int32_t>& nodes, int32_t id) {
    return std::find(nodes.begin(), nodes.end(), id) != nodes.end();
  };
  for (size_t i = 0; i < nodes_.size() && free_.size() < 2; ++i) {
    Node& node = nodes_[i];
    const bool waits =
        contains(batch.nodes, node.at.id) || contains(batch.unsplittable, node.at.id);
    if (node.histogram >= 0 && !waits) free_.push_back(std::exchange(node.histogram, -1));
  }
  return free_.size() >= 2;
}

int DeviceSearch::acquire_histogram() {
  const int taken = free_.back();
  free_.pop_back();
  return taken;
}

void DeviceSearch::plan_single(int32_t id, Batch& batch) {
  Node& node = nodes_[id];
  if (!tree_context_->can_split(node.at)) return;
  node.histogram = acquire_histogram();
  batch.built.push_back(id);
  batch.nodes.push_back(id);
}

void DeviceSearch::plan_pair(int32_t left, int32_t right, Batch& batch) {
  const int parent = std::exchange(nodes_[left].histogram, -1);
  const bool left_smaller = nodes_[left].at.count <= nodes_[right].at.count;
  Node &smaller = nodes_[left_smaller ? left : right],
       &larger = nodes_[left_smaller ? right : left];
  if (parent < 0 || !tree_context_->can_split(larger.at)) {
    if (parent >= 0) free_.push_back(parent);
    plan_single(left, batch);
    plan_single(right, batch);
    return;
  }
  smaller.histogram = acquire_histogram();
  larger.histogram = parent;
  batch.built.push_back(smaller.at.id);
  batch.pairs.insert(batch.pairs.end(), {larger.histogram, smaller.histogram});
  batch.nodes.push_back(larger.at.id);
  if (tree_context_->can_split(smaller.at))
    batch.nodes.push_back(smaller.at.id);
  else
    batch.unsplittable.push_back(smaller.at.id);
}

on_device::Histograms DeviceSearch::histograms() const {
  const bool has_separate_counts = layout().count_lane < 0;
  return {histograms_.data(), histogram_size_,
          has_separate_counts ? bins_.n_bins() * layout().lanes : -1, layout().lanes};
}

void DeviceSearch::run(Batch& batch, std::vector<SplitInfo>& splits, int32_t first_id) {
  if (batch.nodes.empty()) return;
  build(batch);
  scan(batch);
  for (const int32_t id : batch.unsplittable)
    free_.push_back(std::exchange(nodes_[id].histogram, -1));
  const GrowConfig& config = tree_context_->config();
  for (size_t i = 0; i < batch.nodes.size(); ++i) {
    Node& node = nodes_[batch.nodes[i]];
    store_best(node, host_results_.data() + i * (kHead + layout().lanes));
    if (bins_.has_categories()) scan_categories(node);
    const TileSplit* const best = node.best.feature >= 0 ? &node.best : nullptr;
    const float node_sum = best != nullptr ? scores().node_sum(scan_node(node)) : 0.0f;
    const SplitInfo split_info = validate_gain(best, node_sum, layout().n_outputs, config);
    splits[node.at.id - first_id] = split_info;
    const bool is_last = config.max_depth >= 0 && node.at.depth + 1 >= config.max_depth;
    if (split_info.feature < 0 || is_last) free_.push_back(std::exchange(node.histogram, -1));
  }
}

// Split rows so that all multiprocessors have blocks, but no more than pays for adding partial
// sums.
void DeviceSearch::build(const Batch& batch) {
  const int width = std::min(layout().lanes, kBlockLanes);
  const bool has_separate_counts = layout().count_lane < 0;
  std::vector<on_device::HistogramPiece> pieces;
  int64_t n_rows = 0;
  for (const int32_t id : batch.built) n_rows += nodes_[id].at.rows.size();
  const Bins& bins = bins_.host();
  size_t shared = 0;
  int64_t n_parts = 0;  // pieces per row: slots of tiles and lanes
  const auto slot_bytes = [&](const Tile& tile) {
    return sizeof(int32_t) * tile.stride() * (width + (has_separate_counts ? 1 : 0));
  };
  // The slots of a tile are divided evenly, so that blocks take the same time.
  const auto slots_per_piece = [&](const Tile& tile) {
    const int n_fitting = static_cast<int>(
        std::clamp<size_t>(device_->block_memory() / 2 / slot_bytes(tile), 1, kTileFeatures));
    return static_cast<int>(
        Block::count(tile.n_features, Block::count(tile.n_features, n_fitting)));
  };
  for (const int t : tree_context_->tiles()) {
    const Tile& tile = bins.tile(t);
    const int n_slots = slots_per_piece(tile);
    shared = std::max(shared, slot_bytes(tile) * n_slots);
    n_parts += Block::count(tile.n_features, n_slots) * (layout().lanes / width);
  }
  const int64_t n_blocks = int64_t{kHistogramRounds} * device_->n_processors() *
                           device_->count_resident_blocks(kHistogramThreads, shared);
  const int64_t rows_per_piece = std::max(kMinBlockRows, Block::count(n_rows * n_parts, n_blocks));
  for (const int32_t id : batch.built) {
    const Node& node = nodes_[id];
    const RowRange& rows = node.at.rows;
    const DeviceAddress to =
        reinterpret_cast<DeviceAddress>(histograms_.data() + node.histogram * histogram_size_);
    device_->clear(to, static_cast<size_t>(histogram_size_) * sizeof(int32_t));
    for (int64_t b = rows.begin; b < rows.end; b += rows_per_piece)
      for (const int t : tree_context_->tiles()) {
        const Tile& tile = bins.tile(t);
        const int n_slots = slots_per_piece(tile);
        for (int s = 0; s < tile.n_features; s += n_slots) {
          const int n = std::min(n_slots, tile.n_features - s);
          for (int lane = 0; lane < layout().lanes; lane += width)
            pieces.push_back({b, std::min(b + rows_per_piece, rows.end), rows.copy, t, s, n, lane,
                              node.histogram});
        }
      }
  }
  if (pieces.empty()) return;
  pieces_.write(pieces);
  device_->launch({static_cast<int64_t>(pieces.size())},
                  on_device::BuildHistograms{bins_.words(),
                                             bins.n_rows(),
                                             {rows_->ids(0), rows_->ids(1), rows_->ids(2)},
                                             channels_->data(),
                                             width,
                                             bins_.tiles(),
                                             pieces_.data(),
                                             histograms(),
                                             static_cast<int64_t>(shared)},
                  kHistogramThreads);
  if (batch.pairs.empty()) return;
  pairs_.write(batch.pairs);
  Device::Grid grid = device_->grid_for(histogram_size_);
  grid.y = static_cast<int64_t>(batch.pairs.size()) / 2;
  device_->launch(grid, on_device::SubtractHistograms{histograms(), pairs_.data()});
}

// Write the results to `host_results_`.
void DeviceSearch::scan(const Batch& batch) {
  const int lanes = layout().lanes, n_features = bins_.host().n_features();
  const auto n_nodes = static_cast<int64_t>(batch.nodes.size());
  std::vector<on_device::DeviceNode> at;
  std::vector<int32_t> totals;
  std::vector<uint8_t> allowed;
  for (const int32_t id : batch.nodes) {
    const Node& node = nodes_[id];
    at.push_back({node.histogram, static_cast<int32_t>(node.at.count)});
    totals.insert(totals.end(), node.totals.begin(), node.totals.begin() + lanes);
    if (!tree_context_->has_node_features()) continue;
    const std::vector<uint8_t> node_features = tree_context_->get_allowed_features(node.at);
    allowed.insert(allowed.end(), node_features.begin(), node_features.end());
  }
  if (!tree_context_->has_node_features()) allowed = tree_context_->features();
  nodes_at_.write(at);
  totals_.write(totals);
  allowed_.write(allowed);
  if (renewed_) sum_nodes(batch);
  best_.reserve(n_nodes * n_features);
  found_.reserve(n_nodes * (kHead + lanes));

  const SplitConfig& split = tree_context_->config().split;
  const ChannelLayout& channels = layout();
  launch_scan(on_device::ScanNumeric{histograms(),
                                     channels.n_outputs,
                                     n_features,
                                     static_cast<int32_t>(channels.hessian),
                                     channels.hessian_offset,
                                     channels.count_lane,
                                     channels_->gradient_steps(),
                                     channels_->hessian_steps(),
                                     bins_.features(),
                                     nodes_at_.data(),
                                     totals_.data(),
                                     allowed_.data(),
                                     tree_context_->has_node_features() ? n_features : 0,
                                     {split.reg_lambda, split.reg_alpha, split.max_delta_step,
                                      split.min_child_weight, split.min_child_samples},
                                     best_.data()},
              batch);
  const bool have_factors = write_own_sums(batch);
  device_->launch({n_nodes},
                  on_device::BestOfNodes{histograms(), n_features, channels.count_lane,
                                         bins_.features(), nodes_at_.data(), best_.data(),
                                         have_factors ? factors_.data() : nullptr, own_sums_.data(),
                                         found_.data()});
  host_results_ = found_.read(n_nodes * (kHead + lanes));
}

// Write the score sums of the nodes themselves if features have gain factors; return whether they
// have.
bool DeviceSearch::write_own_sums(const Batch& batch) {
  if (tree_context_->config().factors.empty()) return false;
  std::vector<float> own;
  for (const int32_t id : batch.nodes) own.push_back(scan_node(nodes_[id]).node_sum);
  own_sums_.write(own);
  return true;
}

// If a scan needs scratch memory, limit the number of blocks.
void DeviceSearch::launch_scan(const on_device::ScanNumeric& scan, const Batch& batch) {
  const SplitConfig& split = tree_context_->config().split;
  const auto n_nodes = static_cast<int64_t>(batch.nodes.size());
  const int64_t n_scanned = n_nodes * scan.n_features;
  const auto reserve_scratch = [&](int64_t block_floats) {
    const int64_t most = std::max<int64_t>(
        1, kMaxScanScratch / (block_floats * static_cast<int64_t>(sizeof(float))));
    const int64_t n_blocks =
        std::min({n_scanned, int64_t{device_->n_processors()} * kScanBlocks, most});
    scan_scratch_.reserve(static_cast<size_t>(n_blocks * block_floats));
    return n_blocks;
  };
  if (layout().hessian == HessianKind::full) {
    const bool has_node_features = write_solved_lanes(batch);
    const auto m = static_cast<int32_t>(count_solved(layout(), split));
    const int64_t n_blocks = reserve_scratch(on_device::solved_scratch_size(m));
    device_->launch({n_blocks},
                    on_device::ScanSolved{scan, n_scanned, m, lanes_.data(),
                                          has_node_features ? on_device::lanes_solved(m) : 0,
                                          scan_scratch_.data()});
  } else if (split.is_topk(layout().n_outputs)) {
    const int64_t n_blocks = reserve_scratch(on_device::topk_scratch_size(split.leaf_k));
    device_->launch({n_blocks}, on_device::ScanTopk{scan, n_scanned, split.leaf_k,
                                                    split.shared_support, scan_scratch_.data()});
  } else if (directions_.any()) {
    write_bounds(batch);
    device_->launch({scan.n_features, n_nodes},
                    on_device::ScanMonotone{scan, directions_.stride(), device_directions_.data(),
                                            low_.data(), high_.data()});
  } else {
    device_->launch({scan.n_features, n_nodes}, scan);
  }
}

// Write the output bounds of the nodes.
void DeviceSearch::write_bounds(const Batch& batch) {
  std::vector<float> low, high;
  for (const int32_t id : batch.nodes) {
    const OutputBounds& bounds = nodes_[id].value_bounds;
    low.insert(low.end(), bounds.low(), bounds.low() + directions_.stride());
    high.insert(high.end(), bounds.high(), bounds.high() + directions_.stride());
  }
  low_.write(low);
  high_.write(high);
}

// Write the lanes that nodes solve for; return whether they differ between nodes.
bool DeviceSearch::write_solved_lanes(const Batch& batch) {
  const ChannelLayout& channels = layout();
  const int k = channels.n_outputs, size = count_solved(channels, tree_context_->config().split);
  const bool has_node_features = size < k;
  std::vector<int32_t> outputs(k), lanes;
  for (const int32_t id : batch.nodes) {
    const ScanNode node = scan_node(nodes_[id]);
    const auto magnitude = [&](int i) {
      return std::fabs(static_cast<float>(node.totals[i]) * node.gradient_step[i]);
    };
    const int m = select_solved_outputs(k, size, magnitude, outputs.data());
    lanes.insert(lanes.end(), outputs.begin(), outputs.begin() + m);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j <= i; ++j)
        lanes.push_back(channels.hessian_offset + packed(outputs[i], outputs[j]));
    if (!has_node_features) break;
  }
  lanes_.write(lanes);
  return has_node_features;
}

// Recompute the totals of the nodes from the bins of one feature.
void DeviceSearch::sum_nodes(const Batch& batch) {
  if (tree_context_->tiles().empty()) return;
  const int tile = tree_context_->tiles()[0], lanes = layout().lanes;
  const auto n_nodes = static_cast<int64_t>(batch.nodes.size());
  device_->launch({n_nodes}, on_device::SumNodes{histograms(), bins_.first_bin(tile),
                                                 bins_.host().tile(tile).stride(), nodes_at_.data(),
                                                 totals_.data()});
  const std::vector<int32_t> found = totals_.read(static_cast<size_t>(n_nodes * lanes));
  for (int64_t i = 0; i < n_nodes; ++i)
    std::copy_n(found.begin() + i * lanes, lanes, nodes_[batch.nodes[i]].totals.begin());
}

// Store the best numeric split that the GPU has found in a node.
void DeviceSearch::store_best(Node& node, const int32_t* found) {
  on_device::NodeBest best;
  std::memcpy(&best, found, sizeof(best));
  const ScanNode scanned = scan_node(node);
  node.best.reset(scanned);
  if (best.feature < 0) return;
  node.best.sum = best.sum;
  node.best.penalised_gain = scanned.select_feature(best.feature).penalised_gain(best.sum);
  node.best.feature = best.feature;
  node.best.bin = best.bin;
  node.best.missing_left = best.missing_left != 0;
  node.best.set = {};
  node.best.left_count = best.left_count;
  std::copy_n(found + kHead, layout().lanes, node.best.left.begin());
  if (best.n_missing == 0) node.best.send_missing_to_larger_child(scanned);
}

// Scan categorical features in histograms that are copied to the host; ties go to the smaller
// feature.
void DeviceSearch::scan_categories(Node& node) {
  const Bins& bins = bins_.host();
  const int lanes = layout().lanes;
  const std::vector<uint8_t> node_features = tree_context_->has_node_features()
                                                 ? tree_context_->get_allowed_features(node.at)
                                                 : tree_context_->features();
  for (const int t : tree_context_->tiles()) {
    const Tile& tile = bins.tile(t);
    Slots slots = {};
    for (int s = 0; s < tile.n_features; ++s)
      slots[s] = bins.is_categorical(tile.features[s]) && node_features[tile.features[s]];
    if (slots == Slots{}) continue;
    const size_t n_bins = static_cast<size_t>(tile.n_features) * tile.stride();
    const size_t first = static_cast<size_t>(node.histogram * histogram_size_);
    host_sums_.resize(n_bins * (lanes + 1) + 16);
    histograms_.read(host_sums_.data(), n_bins * lanes, first + bins_.first_bin(t) * lanes);
    const bool has_separate_counts = layout().count_lane < 0;
    int32_t* const counts = host_sums_.data() + n_bins * lanes;
    if (has_separate_counts)
      histograms_.read(counts, n_bins, first + bins_.n_bins() * lanes + bins_.first_bin(t));
    TileSplit found;
    find_best_tile_split(
        bins, t,
        {host_sums_.data(), has_separate_counts ? reinterpret_cast<uint32_t*>(counts) : nullptr,
         nullptr},
        scan_node(node), slots, scratch_, found);
    if (found.feature < 0) continue;
    if (node.best.feature < 0 || found.comes_before(node.best)) node.best = std::move(found);
  }
}

}  // namespace polyleaf
