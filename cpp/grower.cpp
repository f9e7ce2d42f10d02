#include "grower.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "parallel.h"
#include "rng.h"

namespace polyleaf {
namespace {

constexpr int64_t kMoveBlock = 8192;   // rows one task moves
constexpr int64_t kChunkRows = 16384;  // least rows of a histogram chunk
constexpr int64_t kSparseRows = 192;   // nodes up to this size are built and scanned by touched bins
constexpr double kLeastRelativeGain = 1.0 / (1 << 20);  // below this float32 cannot tell gain from rounding

}  // namespace

Grower::Grower(const Bins& bins, int n_threads) : bins_(bins), n_threads_(std::max(1, n_threads)) {
  leaf_of_row_.reserve(bins.n_rows());
  scratch_.resize(n_threads_);
  for (auto& w : words_) w.resize(bins.n_tiles());
}

Tree Grower::grow(const Channels& channels, const GrowConfig& config, const uint8_t* features) {
  start(channels, config, features);
  make_root();
  evaluate({0});
  for (std::vector<int32_t> batch = schedule_.next(); !batch.empty(); batch = schedule_.next())
    evaluate(apply_splits(batch));
  finish();
  return std::move(tree_);
}

// ---------------------------------------------------------------------------------------- start and end

void Grower::start(const Channels& channels, const GrowConfig& config, const uint8_t* features) {
  channels_ = &channels;
  config_ = &config;
  if (!(layout_ == channels.layout()) || histogram_ints_ == 0) {
    layout_ = channels.layout();
    lay_out_memory();
  }
  free_.clear();
  for (size_t i = 0; i < pool_.size(); ++i) free_.push_back(static_cast<int>(i));

  features_.assign(bins_.n_features(), 1);
  if (features != nullptr) std::copy(features, features + bins_.n_features(), features_.begin());
  active_tiles_.clear();
  for (int t = 0; t < bins_.n_tiles(); ++t) {
    const Tile& tile = bins_.tile(t);
    if (std::any_of(tile.features, tile.features + tile.n_features, [&](int f) { return features_[f] != 0; }))
      active_tiles_.push_back(t);
  }
  schedule_ = Schedule(config.level_wise, config.max_leaves, config.max_depth);
  nodes_.clear();
  tree_ = Tree();
  tree_.n_outputs = layout_.n_outputs;
}

// Sizes of histograms and scratch, and which nodes are worth a histogram, for channels of this layout.
void Grower::lay_out_memory() {
  pool_.clear();
  tile_sums_.assign(bins_.n_tiles(), 0);
  tile_counts_.assign(bins_.n_tiles(), 0);
  histogram_ints_ = 0;
  size_t largest = 0, all_bins = 0;
  for (int t = 0; t < bins_.n_tiles(); ++t) {
    const size_t n_bins = static_cast<size_t>(bins_.tile(t).n_features) * bins_.tile(t).stride();
    largest = std::max(largest, n_bins);
    all_bins += n_bins;
    tile_sums_[t] = histogram_ints_;
    histogram_ints_ += n_bins * layout_.lanes + 16;  // 16: vectors may read past the last bin
    tile_counts_[t] = histogram_ints_;
    if (layout_.count_lane < 0) histogram_ints_ += n_bins;
    histogram_ints_ = (histogram_ints_ + 15) / 16 * 16;
  }
  const double bins_per_feature = static_cast<double>(all_bins) / bins_.n_features();
  // Ordering a row by a feature's bins costs about as much as four vectors of sixteen sums; a histogram is
  // written, read and cleared bin by bin. One output, and one curvature for all, are scanned from
  // histograms alone.
  const int vectors = layout_.lanes / 16;
  const bool can_order = layout_.n_outputs > 1 && layout_.curvature != Curvature::shared && vectors >= 1;
  ordered_rows_ = can_order ? std::min<int64_t>(60000, static_cast<int64_t>(bins_per_feature * 4 * vectors /
                                                                            (2.2 + 0.1 * vectors)))
                            : 0;
  // Subtracting moves every bin of a histogram that has left the cache; building reads rows. Rows at which
  // both cost the same, from the costs measured in docs/design.md section 5.
  direct_rows_ =
      std::max<int64_t>(std::max(kSparseRows, ordered_rows_),
                        static_cast<int64_t>(bins_per_feature * 20.0 * layout_.lanes / (layout_.lanes + 12)));
  for (Scratch& s : scratch_) {
    s.sums.reserve(largest * layout_.lanes + 16);
    s.counts.reserve(largest + 16);
    s.order.reserve(kTileFeatures * static_cast<size_t>(ordered_rows_) + 16);
    s.start.reserve(2 * kTileFeatures * 256);
    s.lanes.reserve(32 * ((layout_.n_outputs + 15) / 16) + 16);
    s.scan.lanes = s.lanes.data();
    s.clean = false;
  }
}

void Grower::make_root() {
  const RowSample& sample = channels_->sample();
  const PartitionKernels& move = POLYLEAF_SELECT(partition_kernels);
  root_is_sample_ = sample.rows != nullptr;
  Node root;
  root.end = sample.n_used();
  const int64_t n_blocks = Block::count(root.end, kMoveBlock);
  if (root_is_sample_) {
    ids_[0].reserve(root.end);
    std::copy(sample.rows, sample.rows + root.end, ids_[0].data());
    for (int t : active_tiles_) words_[0][t].reserve(root.end);
    parallel_for(n_threads_, n_blocks * static_cast<int64_t>(active_tiles_.size()), [&](int64_t task, int) {
      const int t = active_tiles_[task / n_blocks];
      const Block rows(root.end, kMoveBlock, task % n_blocks);
      move.gather_words(bins_.words(t), sample.rows + rows.begin, rows.end - rows.begin,
                        words_[0][t].data() + rows.begin);
    });
  }
  root.totals = channels_->totals();
  nodes_.push_back(std::move(root));
}

// Numbers the leaves and writes the tree and every row's leaf.
void Grower::finish() {
  const int32_t n = static_cast<int32_t>(nodes_.size());
  tree_.leaf.assign(n, -1);
  tree_.count.resize(n);
  tree_.cover.resize(n);
  std::vector<int32_t> leaves;
  for (int32_t i = 0; i < n; ++i) {
    const Node& node = nodes_[i];
    tree_.count[i] = node.rows();
    tree_.cover[i] = POLYLEAF_SELECT(split_kernels).node_curvature(scan_node(node));
    if (tree_.left[i] >= 0) continue;
    tree_.leaf[i] = tree_.n_leaves++;
    leaves.push_back(i);
  }
  struct Piece {
    int32_t node;
    int64_t begin, end;
  };
  std::vector<Piece> pieces;
  for (int32_t i : leaves)
    for (int64_t b = nodes_[i].begin; b < nodes_[i].end; b += kMoveBlock)
      pieces.push_back({i, b, std::min(b + kMoveBlock, nodes_[i].end)});
  parallel_for(n_threads_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    const Piece& piece = pieces[task];
    const int32_t leaf = tree_.leaf[piece.node];
    const int buffer = nodes_[piece.node].buffer;
    int32_t* out = leaf_of_row_.data();
    if (buffer == 0 && !root_is_sample_) {
      std::fill(out + piece.begin, out + piece.end, leaf);
      return;
    }
    const uint32_t* ids = ids_[buffer].data();
    for (int64_t i = piece.begin; i < piece.end; ++i) out[ids[i]] = leaf;
  });
  if (root_is_sample_) route_outside_rows();
}

// Rows that the sample left out walk down the finished tree.
void Grower::route_outside_rows() {
  const RowSample& sample = channels_->sample();
  parallel_for(n_threads_, Block::count(bins_.n_rows(), kMoveBlock), [&](int64_t task, int) {
    const Block rows(bins_.n_rows(), kMoveBlock, task);
    const uint32_t* next = std::lower_bound(sample.rows, sample.rows + sample.n_rows, rows.begin);
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      if (next < sample.rows + sample.n_rows && *next == i) {
        ++next;
        continue;
      }
      int32_t node = 0;
      while (tree_.left[node] >= 0)
        node =
            tree_.goes_left(node, bins_.code(tree_.feature[node], i)) ? tree_.left[node] : tree_.right[node];
      leaf_of_row_[i] = tree_.leaf[node];
    }
  });
}

// ------------------------------------------------------------------------------------------------ evaluate

bool Grower::can_split(const Node& node) const {
  const int64_t least = std::max(1, config_->split.min_child_samples);
  return (config_->max_depth < 0 || node.depth < config_->max_depth) && node.rows() >= 2 * least;
}

// Children of the last level are never scanned, and small children are built directly: neither needs the
// parent.
bool Grower::keeps_histogram(const Node& node) const {
  return (config_->max_depth < 0 || node.depth + 1 < config_->max_depth) &&
         3 * node.rows() > 4 * direct_rows_;
}

int Grower::take_histogram() {
  if (free_.empty()) {
    if ((pool_.size() + 1) * histogram_ints_ * sizeof(int32_t) > config_->histogram_memory) return -1;
    pool_.emplace_back(histogram_ints_);
    return static_cast<int>(pool_.size()) - 1;
  }
  const int slot = free_.back();
  free_.pop_back();
  return slot;
}

void Grower::drop_histogram(Node& node) {
  if (node.histogram >= 0) free_.push_back(node.histogram);
  node.histogram = -1;
}

// `nodes`: the root, or children in pairs (left, right). Finds their best splits and offers them to the
// schedule.
void Grower::evaluate(const std::vector<int32_t>& nodes) {
  // Every new node is a leaf until it is split.
  for (int32_t i : nodes) {
    while (tree_.n_nodes() <= i) {
      tree_.feature.push_back(-1);
      tree_.threshold.push_back(-1);
      tree_.missing_left.push_back(0);
      tree_.left.push_back(-1);
      tree_.right.push_back(-1);
      tree_.category_set.push_back(-1);
      tree_.gain.push_back(0);
      tree_.output_gain.resize(tree_.output_gain.size() + layout_.n_outputs, 0.0f);
    }
  }
  if (!schedule_.can_split_more()) return;
  std::vector<Job> jobs = plan(nodes);
  if (jobs.empty()) return;
  if (config_->colsample_bynode < 1.0)
    for (int32_t i : nodes) allowed_features(i, nodes_[i].allowed);
  gather_channels(jobs);
  build_chunks(jobs);
  const int64_t n_tiles = static_cast<int64_t>(active_tiles_.size());
  std::vector<TileSplit> splits(jobs.size() * 2 * n_tiles);
  parallel_for(n_threads_, static_cast<int64_t>(jobs.size()) * n_tiles, [&](int64_t task, int thread) {
    run_job(jobs[task / n_tiles], static_cast<int>(task / n_tiles), static_cast<int>(task % n_tiles), thread,
            splits);
  });
  for (size_t j = 0; j < jobs.size(); ++j) {
    choose(jobs[j].build, &splits[j * 2 * n_tiles], n_tiles);
    if (jobs[j].subtract >= 0) choose(jobs[j].subtract, &splits[(j * 2 + 1) * n_tiles], n_tiles);
  }
}

std::vector<Grower::Job> Grower::plan(const std::vector<int32_t>& nodes) {
  std::vector<Job> jobs;
  const auto direct = [&](int32_t i) {
    Node& node = nodes_[i];
    if (!can_split(node)) return;
    Job job;
    job.build = i;
    job.by_rows = node.rows() <= ordered_rows_;
    job.sparse = node.rows() <= kSparseRows;
    if (!job.by_rows && keeps_histogram(node)) node.histogram = take_histogram();
    job.keep = node.histogram >= 0;
    jobs.push_back(job);
  };
  if (nodes.size() == 1) {
    direct(nodes[0]);
    return jobs;
  }
  for (size_t p = 0; p + 1 < nodes.size(); p += 2) {
    Node& left = nodes_[nodes[p]];
    Node& right = nodes_[nodes[p + 1]];
    const int parent = left.histogram;  // handed down by apply_splits
    left.histogram = right.histogram = -1;
    const bool left_smaller = left.rows() <= right.rows();
    Node& larger = left_smaller ? right : left;
    if (parent < 0 || !can_split(larger) || larger.rows() <= direct_rows_) {
      if (parent >= 0) free_.push_back(parent);
      direct(nodes[p]);
      direct(nodes[p + 1]);
      continue;
    }
    Job job;
    job.build = left_smaller ? nodes[p] : nodes[p + 1];
    job.subtract = left_smaller ? nodes[p + 1] : nodes[p];
    job.parent = parent;
    larger.histogram = parent;
    Node& smaller = nodes_[job.build];
    if (can_split(smaller) && keeps_histogram(smaller)) smaller.histogram = take_histogram();
    job.keep = smaller.histogram >= 0;
    jobs.push_back(job);
  }
  return jobs;
}

// Channels of the rows to be read, next to each other: gathered once, then read once per tile.
void Grower::gather_channels(std::vector<Job>& jobs) {
  struct Piece {
    int64_t from, n, to;
    int buffer;
  };
  std::vector<Piece> pieces;
  std::vector<int64_t> start(jobs.size(), -1);
  int64_t total = 0;
  for (size_t j = 0; j < jobs.size(); ++j) {
    const Node& node = nodes_[jobs[j].build];
    if (node.buffer == 0 && !root_is_sample_) continue;
    start[j] = total;
    for (int64_t b = node.begin; b < node.end; b += kMoveBlock) {
      const int64_t n = std::min(kMoveBlock, node.end - b);
      pieces.push_back({b, n, total, node.buffer});
      total += n;
    }
  }
  gathered_.reserve(static_cast<size_t>(total) * layout_.lanes + 64);
  const HistogramKernels& kernels = POLYLEAF_SELECT(histogram_kernels);
  parallel_for(n_threads_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    const Piece& piece = pieces[task];
    kernels.gather(channels_->row(0), ids_[piece.buffer].data() + piece.from, piece.n, layout_.lanes,
                   gathered_.data() + piece.to * layout_.lanes);
  });
  for (size_t j = 0; j < jobs.size(); ++j)
    jobs[j].channels = start[j] < 0 ? channels_->row(0) : gathered_.data() + start[j] * layout_.lanes;
}

// Where there are fewer tiles than work for all threads, the rows of large nodes are cut into chunks whose
// histograms are added up: integers, so the cut leaves no trace.
void Grower::build_chunks(std::vector<Job>& jobs) {
  const int64_t n_tiles = static_cast<int64_t>(active_tiles_.size());
  const int64_t n_tasks = static_cast<int64_t>(jobs.size()) * n_tiles;
  if (n_threads_ == 1 || n_tasks >= 4 * n_threads_) return;
  const int64_t wanted = (4 * n_threads_ + n_tasks - 1) / n_tasks;
  struct Piece {
    size_t job;
    int tile, chunk;
  };
  std::vector<Piece> pieces;
  for (size_t j = 0; j < jobs.size(); ++j) {
    Job& job = jobs[j];
    job.chunks = static_cast<int>(
        std::max<int64_t>(1, std::min<int64_t>(wanted, nodes_[job.build].rows() / kChunkRows)));
    if (job.chunks == 1) continue;
    job.first_chunk = pieces.size();
    for (int t : active_tiles_)
      for (int c = 0; c < job.chunks; ++c) pieces.push_back({j, t, c});
  }
  if (pieces.empty()) return;
  if (chunk_.size() < pieces.size()) chunk_.resize(pieces.size());
  const HistogramKernels& kernels = POLYLEAF_SELECT(histogram_kernels);
  parallel_for(n_threads_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    const Piece& piece = pieces[task];
    const Job& job = jobs[piece.job];
    const Node& node = nodes_[job.build];
    const int t = piece.tile;
    const Tile& tile = bins_.tile(t);
    const size_t n_bins = static_cast<size_t>(tile.n_features) * tile.stride();
    Buffer<int32_t>& buffer = chunk_[task];
    buffer.reserve(n_bins * (layout_.lanes + 1) + 16);
    std::memset(buffer.data(), 0, sizeof(int32_t) * n_bins * (layout_.lanes + 1));
    const int64_t begin = node.rows() * piece.chunk / job.chunks;
    const int64_t end = node.rows() * (piece.chunk + 1) / job.chunks;
    uint32_t* counts = layout_.count_lane < 0
                           ? reinterpret_cast<uint32_t*>(buffer.data() + n_bins * layout_.lanes)
                           : nullptr;
    kernels.build(std::as_const(*this).words(node.buffer, t) + node.begin + begin,
                  job.channels + begin * layout_.lanes, end - begin, tile.n_features, tile.log2_stride,
                  layout_.lanes, buffer.data(), counts);
  });
}

// Builds one tile of a job's histogram, subtracts it from the parent's, and scans both.
void Grower::run_job(const Job& job, int job_index, int tile_index, int thread,
                     std::vector<TileSplit>& splits) {
  const int t = active_tiles_[tile_index];
  const Tile& tile = bins_.tile(t);
  const Node& node = nodes_[job.build];
  const size_t n_bins = static_cast<size_t>(tile.n_features) * tile.stride();
  const bool counts_apart = layout_.count_lane < 0;
  const HistogramKernels& kernels = POLYLEAF_SELECT(histogram_kernels);
  Scratch& scratch = scratch_[thread];

  if (job.by_rows && !has_categories(t)) {
    scan_by_rows(job, t, thread, splits[job_index * 2 * active_tiles_.size() + tile_index]);
    return;
  }
  int32_t* sums = job.keep ? pool_[node.histogram].data() + tile_sums_[t] : scratch.sums.data();
  int32_t* count_ints = job.keep ? pool_[node.histogram].data() + tile_counts_[t] : scratch.counts.data();
  uint32_t* counts = counts_apart ? reinterpret_cast<uint32_t*>(count_ints) : nullptr;
  if (!job.sparse || !scratch.clean) {
    const size_t size = job.sparse ? scratch.sums.size() : n_bins * layout_.lanes;
    std::memset(sums, 0, sizeof(int32_t) * size);
    if (counts_apart)
      std::memset(count_ints, 0, sizeof(int32_t) * (job.sparse ? scratch.counts.size() : n_bins));
  }
  if (!job.keep) scratch.clean = job.sparse;

  const uint64_t* rows = std::as_const(*this).words(node.buffer, t) + node.begin;
  if (job.chunks == 1) {
    kernels.build(rows, job.channels, node.rows(), tile.n_features, tile.log2_stride, layout_.lanes, sums,
                  counts);
  } else {
    for (int c = 0; c < job.chunks; ++c) {
      const Buffer<int32_t>& part =
          chunk_[job.first_chunk + static_cast<size_t>(tile_index) * job.chunks + c];
      kernels.add(sums, part.data(), static_cast<int64_t>(n_bins) * layout_.lanes);
      if (counts_apart)
        kernels.add(count_ints, part.data() + n_bins * layout_.lanes, static_cast<int64_t>(n_bins));
    }
  }
  const size_t n_tiles = active_tiles_.size();
  TileSplit& built = splits[job_index * 2 * n_tiles + tile_index];
  if (job.subtract >= 0) {
    int32_t* parent = pool_[job.parent].data() + tile_sums_[t];
    int32_t* parent_counts = pool_[job.parent].data() + tile_counts_[t];
    kernels.subtract(parent, sums, static_cast<int64_t>(n_bins) * layout_.lanes);
    if (counts_apart) kernels.subtract(parent_counts, count_ints, static_cast<int64_t>(n_bins));
    scan(job.subtract, t,
         {parent, counts_apart ? reinterpret_cast<uint32_t*>(parent_counts) : nullptr, nullptr}, thread,
         splits[(job_index * 2 + 1) * n_tiles + tile_index]);
  }
  uint64_t touched[kTileFeatures * 4] = {};
  if (job.sparse) kernels.touch(rows, node.rows(), tile.n_features, touched);
  if (can_split(node)) scan(job.build, t, {sums, counts, job.sparse ? touched : nullptr}, thread, built);
  if (!job.sparse) return;
  for (int64_t i = 0; i < node.rows(); ++i)
    for (int s = 0; s < tile.n_features; ++s) {
      const size_t bin = (static_cast<size_t>(s) << tile.log2_stride) + ((rows[i] >> (8 * s)) & 255);
      std::memset(sums + bin * layout_.lanes, 0, sizeof(int32_t) * layout_.lanes);
      if (counts_apart) counts[bin] = 0;
    }
}

bool Grower::has_categories(int t) const {
  const Tile& tile = bins_.tile(t);
  return std::any_of(tile.features, tile.features + tile.n_features,
                     [&](int f) { return bins_.is_categorical(f); });
}

// A small node with many outputs: no histogram is written, its rows are visited in order of each feature's
// bins.
void Grower::scan_by_rows(const Job& job, int t, int thread, TileSplit& out) {
  const Tile& tile = bins_.tile(t);
  const Node& node = nodes_[job.build];
  Scratch& scratch = scratch_[thread];
  const uint64_t* rows = std::as_const(*this).words(node.buffer, t) + node.begin;
  uint32_t* counts = scratch.start.data() + kTileFeatures * 256;
  RowsByBin by_bin[kTileFeatures];
  for (int s = 0; s < tile.n_features; ++s) {
    uint32_t* start = scratch.start.data() + s * tile.stride();
    uint16_t* order = scratch.order.data() + s * node.rows();
    POLYLEAF_SELECT(split_kernels)
        .order_rows(rows, node.rows(), s, tile.stride(), counts + s * tile.stride(), start, order);
    by_bin[s] = {job.channels, order, start};
  }
  scan(job.build, t, {nullptr, counts, nullptr, by_bin}, thread, out);
}

ScanNode Grower::scan_node(const Node& node) const {
  return {&config_->split,
          &layout_,
          channels_->gradient_step(),
          channels_->curvature_step(),
          node.totals.data(),
          static_cast<int32_t>(node.rows())};
}

// The ceil(fraction * m) of the tree's m features with the smallest hash of (seed, node, feature).
void Grower::allowed_features(int32_t node, std::vector<uint8_t>& allowed) const {
  allowed = features_;
  std::vector<std::pair<uint64_t, int>> order;
  for (int f = 0; f < bins_.n_features(); ++f)
    if (features_[f]) order.emplace_back(hash(config_->seed, node, f), f);
  const size_t keep =
      static_cast<size_t>(std::ceil(config_->colsample_bynode * static_cast<double>(order.size())));
  std::sort(order.begin(), order.end());
  for (size_t i = keep; i < order.size(); ++i) allowed[order[i].second] = 0;
}

void Grower::scan(int32_t node, int t, const TileHistogram& histogram, int thread, TileSplit& out) {
  const Tile& tile = bins_.tile(t);
  uint8_t allowed[kTileFeatures];
  const std::vector<uint8_t>& flags = config_->colsample_bynode < 1.0 ? nodes_[node].allowed : features_;
  for (int s = 0; s < tile.n_features; ++s) allowed[s] = flags[tile.features[s]];
  best_split_of_tile(bins_, t, histogram, scan_node(nodes_[node]), allowed, scratch_[thread].scan, out);
}

// The best of the tiles' splits; the node joins the frontier if that one is admissible.
void Grower::choose(int32_t id, const TileSplit* splits, size_t n) {
  const TileSplit* best = nullptr;
  for (size_t t = 0; t < n; ++t) {
    if (splits[t].feature < 0) continue;
    if (best == nullptr || splits[t].sum > best->sum ||
        (splits[t].sum == best->sum && splits[t].feature < best->feature))
      best = &splits[t];
  }
  Node& node = nodes_[id];
  const double parent = POLYLEAF_SELECT(split_kernels).node_sum(scan_node(node));
  if (best != nullptr) {
    const double sum = best->sum, difference = sum - parent;
    node.gain = 0.5 * difference / layout_.n_outputs;
    if (std::isfinite(sum) && node.gain > config_->split.min_split_gain &&
        difference > kLeastRelativeGain * sum) {
      node.split = *best;
      schedule_.push(id, node.gain);
      return;
    }
  }
  drop_histogram(node);
}

// ------------------------------------------------------------------------------------------------ apply

const uint64_t* Grower::words(int buffer, int tile) const {
  return buffer == 0 && !root_is_sample_ ? bins_.words(tile) : words_[buffer][tile].data();
}

uint64_t* Grower::words(int buffer, int tile) {
  return words_[buffer][tile].data();
}

Route Grower::route_of(const TileSplit& split) const {
  const Tile& tile = bins_.tile(bins_.tile_of(split.feature));
  Route route;
  route.slot = bins_.slot_of(split.feature);
  route.mask = tile.stride() - 1;
  route.offset = split.missing_left ? 1 : 0;
  route.threshold = split.bin + route.offset;
  return route;
}

// Splits the nodes of a batch: rows move to the children, the tree gets its nodes. Returns the children in
// pairs.
std::vector<int32_t> Grower::apply_splits(const std::vector<int32_t>& batch) {
  const PartitionKernels& move = POLYLEAF_SELECT(partition_kernels);
  struct Piece {
    size_t split;
    int64_t begin, end, n_left, left_to, right_to;
    size_t bits;
  };
  struct Move {
    int32_t node;
    Route route;
    CategorySet set;
    bool with_words;
  };
  std::vector<Move> moves(batch.size());
  std::vector<Piece> pieces;
  size_t n_bits = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const Node& node = nodes_[batch[i]];
    moves[i] = {batch[i], route_of(node.split), node.split.set, false};
    if (node.split.bin < 0) {
      // The tile stores the missing code as its last bin.
      const int missing = bins_.tile(bins_.tile_of(node.split.feature)).missing();
      if (missing != kMissingCode) moves[i].set[missing >> 6] &= ~(uint64_t{1} << (missing & 63));
      if (node.split.missing_left) moves[i].set[missing >> 6] |= uint64_t{1} << (missing & 63);
      moves[i].route.set = moves[i].set.data();
    }
    for (int64_t b = node.begin; b < node.end; b += kMoveBlock) {
      const int64_t end = std::min(b + kMoveBlock, node.end);
      pieces.push_back({i, b, end, 0, 0, 0, n_bits});
      n_bits += static_cast<size_t>(kMoveBlock / 8);
    }
  }
  for (Move& m : moves)  // after the vector has its final address
    if (m.route.set != nullptr) m.route.set = m.set.data();
  bits_.reserve(n_bits + 64);
  parallel_for(n_threads_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    Piece& p = pieces[task];
    const Node& node = nodes_[moves[p.split].node];
    const uint64_t* from = std::as_const(*this).words(node.buffer, bins_.tile_of(node.split.feature));
    p.n_left = move.decide(from + p.begin, p.end - p.begin, moves[p.split].route, bits_.data() + p.bits);
  });

  std::vector<int32_t> children;
  for (size_t i = 0; i < batch.size(); ++i) {
    const int32_t id = batch[i];
    const int32_t left_id = static_cast<int32_t>(nodes_.size());
    Node left, right;
    {
      Node& node = nodes_[id];
      left.depth = right.depth = node.depth + 1;
      left.buffer = right.buffer = node.buffer == 1 ? 2 : 1;
      left.begin = node.begin;
      right.end = node.end;
      left.end = right.begin = node.begin + node.split.left_count;
      left.histogram = node.histogram;
      node.histogram = -1;
      left.totals = node.split.left;
      right.totals = node.totals;
      for (int j = 0; j < layout_.lanes; ++j) right.totals[j] -= left.totals[j];
      moves[i].with_words = can_split(left) || can_split(right);
      tree_.feature[id] = node.split.feature;
      tree_.threshold[id] = node.split.bin;
      tree_.missing_left[id] = node.split.missing_left;
      tree_.left[id] = left_id;
      tree_.right[id] = left_id + 1;
      tree_.gain[id] = node.gain;
      if (node.split.bin < 0) {
        tree_.category_set[id] = static_cast<int32_t>(tree_.categories.size());
        tree_.categories.push_back(node.split.set);
        tree_.categories.back()[3] &= ~(uint64_t{1} << 63);  // missing_left alone tells where missing goes
      }
      POLYLEAF_SELECT(split_kernels)
          .output_terms(scan_node(node), node.split.left.data(), node.split.left_count,
                        tree_.output_gain.data() + static_cast<size_t>(id) * layout_.n_outputs);
    }
    nodes_.push_back(std::move(left));
    nodes_.push_back(std::move(right));
    children.push_back(left_id);
    children.push_back(left_id + 1);
  }
  // Where each piece's rows go: after those of the pieces before it.
  for (size_t p = 0, i = 0; i < batch.size(); ++i) {
    int64_t to_left = nodes_[children[2 * i]].begin, to_right = nodes_[children[2 * i + 1]].begin;
    for (; p < pieces.size() && pieces[p].split == i; ++p) {
      pieces[p].left_to = to_left;
      pieces[p].right_to = to_right;
      to_left += pieces[p].n_left;
      to_right += pieces[p].end - pieces[p].begin - pieces[p].n_left;
    }
  }
  const int64_t n_rows = channels_->sample().n_used();
  for (int buffer : {1, 2}) {
    ids_[buffer].reserve(n_rows);
    for (int t : active_tiles_) words_[buffer][t].reserve(n_rows);
  }
  parallel_for(n_threads_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    const Piece& p = pieces[task];
    const Node& node = nodes_[moves[p.split].node];
    const int to = node.buffer == 1 ? 2 : 1;
    const int64_t n = p.end - p.begin;
    const uint8_t* bits = bits_.data() + p.bits;
    if (node.buffer == 0 && !root_is_sample_)
      move.number_ids(static_cast<uint32_t>(p.begin), bits, n, ids_[to].data() + p.left_to, p.n_left,
                      ids_[to].data() + p.right_to);
    else
      move.move_ids(ids_[node.buffer].data() + p.begin, bits, n, ids_[to].data() + p.left_to, p.n_left,
                    ids_[to].data() + p.right_to);
    if (!moves[p.split].with_words) return;
    for (int t : active_tiles_)
      move.move_words(std::as_const(*this).words(node.buffer, t) + p.begin, bits, n, words(to, t) + p.left_to,
                      p.n_left, words(to, t) + p.right_to);
  });
  return children;
}

}  // namespace polyleaf
