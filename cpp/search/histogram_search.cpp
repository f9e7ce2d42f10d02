#include "search/histogram_search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "base/parallel.h"
#include "split_gain/monotone_constraints.h"

namespace polyleaf {
namespace {

constexpr int64_t kChunkRows = 16384;  // least rows of a histogram chunk
constexpr int64_t kLabelRows = 192;  // nodes up to this size are built and scanned by touched bins
constexpr int64_t kJointRows =
    2;  // rows for each bin of a tile from which they are added as one number
constexpr int64_t kJointRunRows =
    2047;  // of a bin: a gradient, a Hessian and a count take 64 bits at most
constexpr int kRidingLanes = 64;      // of more, counting rows takes little of the time
constexpr double kTilesToKeep = 0.4;  // with fewer tiles in use by a node histograms are not kept

// The first of those that are judged best; nullptr: none was found.
const TileSplit* best_of(const std::vector<TileSplit>& splits) {
  const TileSplit* best = nullptr;
  for (const TileSplit& split : splits) {
    if (split.feature < 0) continue;
    if (best == nullptr || split.comes_before(*best)) best = &split;
  }
  return best;
}

// Whether counts may ride on sums: no lane is theirs.
bool may_ride(const ChannelLayout& layout) {
  return layout.count_lane < 0 && layout.lanes <= kRidingLanes;
}

// Clears the flags of slots that hold one code in all rows: they have no split.
void leave_out_constant(const uint64_t* words, int64_t n, Slots& slots) {
  uint64_t varying = 0;
  for (int64_t i = 1; i < n; ++i) varying |= words[i] ^ words[0];
  for (int s = 0; s < kTileFeatures; ++s) slots[s] &= (varying >> (8 * s) & 255) != 0;
}

}  // namespace

HistogramSearch::HistogramSearch(const Bins& bins, const Context& context)
    : bins_(bins), context_(context), fixed_(context), shared_(context) {
  scratch_.resize(context_.n_threads);
}

void HistogramSearch::start(const TreeContext& scope, const SearchNode& root) {
  scope_ = &scope;
  source_->start(scope, root);
  check_monotone_constraints(directions_, source_->layout(), scope.config().split);
  if (context_.is_distributed()) {
    if (bins_.sparse_columns().n_features() > 0)
      throw std::invalid_argument("Ranks add up channels of features that are held dense.");
    shared_.share_out(bins_, scope.tiles(), source_->layout());
  }
  if (!laid_out_ || !(layout_ == source_->layout())) {
    layout_ = source_->layout();
    lay_out_memory();
    laid_out_ = true;
  }
  for (Scratch& s : scratch_)
    s.workspace.reserve(workspace_floats(layout_, scope.config().split) + 16);
  pool_.start(scope.config().histogram_memory);
  nodes_.clear();
  Node& added = add_node(root, source_->view(root.id));
  added.totals = source_->totals();
  added.value_bounds = OutputBounds(directions_.stride());
  set_joint_formats();
  find_runs();
  chance_ = scope_->has_sorted_categories() ? source_->categorical_overfit() : CategoricalOverfit();
}

// Of rows in which few enough share a bin for counts to ride.
void HistogramSearch::find_runs() {
  if (!may_ride(layout_) || !runs_.empty()) return;
  if (bins_.is_external()) return;  // words may have to be read from a disk
  runs_ = bins_.find_row_runs(kMaxPackedCount, context_);
}

// QuantisedGradients that a row keeps are known to their largest; of those made for each node sums
// are kept apart.
void HistogramSearch::set_joint_formats() {
  const ChannelView view = source_->view(0);
  joint_.assign(bins_.n_tiles(), {});
  if (view.largest == nullptr || layout_.lanes != PackedSumFormat::kChannels) return;
  if (most_rows_.empty()) {
    // Words that stay may have to be read from a disk.
    if (bins_.n_rows() <= kChunkRows || bins_.is_external())
      most_rows_.assign(bins_.n_tiles(), bins_.n_rows());
    else
      most_rows_ = bins_.count_max_bin_rows(context_);
  }
  ChannelRange channels[PackedSumFormat::kChannels];
  for (int j = 0; j < PackedSumFormat::kChannels; ++j)
    channels[j] = {j < layout_.n_outputs ? -view.largest[j] : 0, view.largest[j]};
  for (const int t : scope_->tiles()) {
    // Numbers are spread over the sums bin by bin: only after many rows.
    const PackedSumFormat format = PackedSumFormat::make(channels, most_rows_[t]);
    const int64_t n_bins = int64_t{bins_.tile(t).n_features} * bins_.tile(t).stride();
    if (format.rows == most_rows_[t] || format.rows >= kJointRows * n_bins)
      joint_[t] = {format};
    else if (bins_.n_rows() > kChunkRows && !bins_.is_external())
      joint_[t] = {PackedSumFormat::make(channels, kJointRunRows), true};
    if (joint_[t].format.rows < kJointRunRows && joint_[t].in_runs) joint_[t] = {};
  }
  const bool any =
      std::any_of(joint_.begin(), joint_.end(), [](const Joint& joint) { return joint.in_runs; });
  if (any && joint_runs_.empty()) joint_runs_ = bins_.find_row_runs(kJointRunRows, context_);
}

// For channels of this layout.
void HistogramSearch::lay_out_memory() {
  pool_.lay_out(bins_, layout_);
  set_thresholds();
  for (Scratch& s : scratch_)
    s.reserve(layout_, pool_.most_bins(), static_cast<size_t>(ordered_rows_));
}

void HistogramSearch::Scratch::reserve(const ChannelLayout& layout, size_t most_bins,
                                       size_t ordered_rows) {
  sums.reserve(most_bins * layout.lanes + 16);
  counts.reserve(most_bins + 16);
  order.reserve(kTileFeatures * ordered_rows + 16);
  start.reserve(2 * kTileFeatures * 256);
  lanes.reserve(32 * ((layout.n_outputs + 15) / 16) + 16);
  scan.lanes = lanes.data();
  moments.reserve(moment_doubles(layout) + 16);
  scan.moments = moments.data();
  cells.reserve(layout.lanes);
  clean = false;
  below.reserve(most_bins + 16);
  std::memset(below.data(), 0, sizeof(int32_t) * below.size());
  if (layout.lanes != PackedSumFormat::kChannels) return;
  joint.reserve(most_bins + 16);
  std::memset(joint.data(), 0, sizeof(uint64_t) * joint.size());
}

// Which nodes are worth a histogram.
void HistogramSearch::set_thresholds() {
  const int64_t n_in_tiles = bins_.n_features() - bins_.sparse_columns().n_features();
  const double bins_per_feature =
      static_cast<double>(pool_.n_bins()) / static_cast<double>(std::max<int64_t>(1, n_in_tiles));
  // Ordering a row by a feature's bins costs about as much as four vectors of sixteen sums; a
  // histogram is written, read and cleared bin by bin. One output, and one Hessian for all, are
  // scanned from histograms alone.
  const int vectors = layout_.lanes / 16;
  const bool can_order = layout_.n_outputs > 1 && layout_.hessian != HessianKind::shared &&
                         vectors >= 1 && layout_.hessian != HessianKind::full && !layout_.linear();
  ordered_rows_ =
      can_order
          ? std::min<int64_t>(
                60000, static_cast<int64_t>(bins_per_feature * 4 * vectors / (2.2 + 0.1 * vectors)))
          : 0;
  // Subtracting moves every bin of a histogram that has left the cache; building reads rows. Rows
  // at which both cost the same, from the costs measured in docs/development/decisions.md.
  // Histograms that have to be sent cost more than either.
  direct_rows_ =
      context_.is_distributed()
          ? 0
          : std::max<int64_t>(std::max(kLabelRows, ordered_rows_),
                              static_cast<int64_t>(bins_per_feature * 20.0 * layout_.lanes /
                                                   (layout_.lanes + 12)));
}

// Children of the last level are never scanned, and small children are built directly: neither
// needs the parent. Where a node looks at few features only their tiles are built, and a child
// needs others.
bool HistogramSearch::keeps_histogram(const Node& node) const {
  const GrowConfig& config = scope_->config();
  const double tiles_in_use = 1.0 - std::pow(1.0 - config.colsample_bynode, kTileFeatures);
  return source_->fixed() && bins_.n_tiles() > 0 && tiles_in_use >= kTilesToKeep &&
         (config.max_depth < 0 || node.at.depth + 1 < config.max_depth) &&
         3 * node.at.count > 4 * direct_rows_;
}

void HistogramSearch::drop_histogram(Node& node) {
  if (node.histogram >= 0) pool_.give_back(node.histogram);
  node.histogram = -1;
}

void HistogramSearch::split(int32_t parent, const SearchNode& left, const SearchNode& right,
                            float* output_gain) {
  Node& node = nodes_[parent];
  if (source_->fixed())
    judge_split(node, output_gain);
  else
    source_->split(parent, node.best, scan_node(node), left, right, output_gain);
  const int handed_down = node.histogram;  // it is the left child's, until the pair is evaluated
  node.histogram = -1;
  Node& l = add_node(left, node.view);
  Node& r = add_node(right, node.view);
  l.totals = node.best.left;
  r.totals = node.totals;
  for (int j = 0; j < node.view.layout->lanes; ++j) r.totals[j] -= l.totals[j];
  l.histogram = handed_down;
  hand_down_bounds(node, l, r);
  if (directions_.any())
    propagate_bounds(of_best(node), node.best.feature, node.best.left.data(), node.best.left_count,
                     l.value_bounds, r.value_bounds);
}

// What each output gains by the node's split.
void HistogramSearch::judge_split(const Node& node, float* output_gain) const {
  scores().output_terms(of_best(node), node.best.left.data(), node.best.left_count, output_gain);
}

ScanNode HistogramSearch::of_best(const Node& node) const {
  return node.best.candidate_node(scan_node(node), bins_);
}

HistogramSearch::Node& HistogramSearch::add_node(const SearchNode& at, const ChannelView& view) {
  Node& node = nodes_.add();
  node.at = at;
  node.view = view;
  node.histogram = -1;
  node.bounds.reset();
  node.prune_bound = node.floor = 0;
  return node;
}

double HistogramSearch::cover(int32_t node) const {
  return scores().node_hessian(scan_node(nodes_[node]));
}

void HistogramSearch::evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                               std::vector<SplitInfo>& choices) {
  choices.assign(nodes.size(), SplitInfo());
  const ObjectPool<Proposals>& found = propose(nodes, renewed);
  for (size_t i = 0; i < found.size(); ++i)
    choices[found[i].node - nodes[0].id] =
        choose(found[i]);  // ids of a batch of children follow each other
}

const ObjectPool<HistogramSearch::Proposals>& HistogramSearch::propose(
    const std::vector<SearchNode>& nodes, bool renewed, size_t wanted) {
  per_part_ = wanted > 1 && bins_.sparse_columns().n_features() > 0 ? kTileFeatures
                                                                    : 1;  // else a tile is a group
  for (const SearchNode& node : nodes) nodes_[node.id].at = node;
  if (renewed) {
    for (const SearchNode& node : nodes) {
      drop_histogram(nodes_[node.id]);
      nodes_[node.id].bounds.reset();
      nodes_[node.id].value_bounds = OutputBounds(directions_.stride());
    }
    set_joint_formats();
    chance_ =
        scope_->has_sorted_categories() ? source_->categorical_overfit() : CategoricalOverfit();
  }
  std::vector<Job> jobs = plan(nodes);
  proposals_.clear();
  if (jobs.empty()) return proposals_;
  if (scope_->has_node_features())
    parallel_for(context_, static_cast<int64_t>(nodes.size()), [&](int64_t i, int) {
      nodes_[nodes[i].id].allowed =
          scope_->can_split(nodes[i]) ? scope_->get_allowed_features(nodes[i]) : scope_->features();
    });
  gather_channels(jobs);
  if (renewed) sum_totals(jobs);
  build_chunks(jobs);
  set_bounds(jobs);
  if (bins_.sparse_columns().n_features() > 0) set_cell_bounds(jobs);
  make_room(jobs);
  const size_t at_once = !context_.is_distributed() ? jobs.size() : shared_.at_once();
  for (size_t first = 0; first < jobs.size(); first += at_once) {
    const std::span<Job> some =
        std::span(jobs).subspan(first, std::min(at_once, jobs.size() - first));
    if (context_.is_distributed()) add_ranks(some);
    run(some);
  }
  if (context_.is_distributed()) hear_ranks(wanted);
  return proposals_;
}

void HistogramSearch::run(std::span<Job> jobs) {
  const int n_parts = scope_->n_parts();
  const int64_t n_jobs = static_cast<int64_t>(jobs.size());
  // The largest first: threads that are done wait for a small one.
  std::vector<const Job*> order;
  for (const Job& job : jobs) order.push_back(&job);
  std::stable_sort(order.begin(), order.end(), [&](const Job* a, const Job* b) {
    return nodes_[a->build].size() > nodes_[b->build].size();
  });
  parallel_for(context_, n_jobs * n_parts, [&](int64_t task, int thread) {
    // Words that stay may have to be read from a disk: all that is wanted of one tile before the
    // next one.
    const int64_t job = bins_.is_external() ? task % n_jobs : task / n_parts;
    run_part(*order[job], static_cast<int>(bins_.is_external() ? task / n_jobs : task % n_parts),
             thread);
  });
}

// Histograms of this rank's rows become those of all.
void HistogramSearch::add_ranks(std::span<Job> jobs) {
  const auto n_tiles = static_cast<int64_t>(scope_->tiles().size());
  shared_.start(jobs.size());
  for (size_t j = 0; j < jobs.size(); ++j) jobs[j].shared = j;
  parallel_for(context_, static_cast<int64_t>(jobs.size()) * n_tiles,
               [&](int64_t task, int thread) {
                 const Job& job = jobs[task / n_tiles];
                 const auto tile = static_cast<int>(task % n_tiles);
                 build_tile(job, tile,
                            shared_.bins(job.shared, tile, *nodes_[job.build].view.layout), thread);
               });
  shared_.add_ranks();
}

// The best that each rank has found in its tiles, in place of the best of each tile.
void HistogramSearch::hear_ranks(size_t wanted) {
  std::vector<TileSplit> own;
  for (size_t i = 0; i < proposals_.size(); ++i) {
    std::vector<const TileSplit*> best = {best_of(proposals_[i].splits)};
    if (wanted > 1) best = sorted_by_gain(proposals_[i].splits);
    best.resize(wanted, nullptr);
    for (const TileSplit* split : best) own.push_back(split != nullptr ? *split : TileSplit());
  }
  std::vector<TileSplit> all = shared_.gather(own);
  for (size_t i = 0; i < proposals_.size(); ++i) {
    std::vector<TileSplit>& splits = proposals_[i].splits;
    splits.clear();
    for (size_t from = i * wanted; from < all.size(); from += own.size())
      std::move(all.begin() + from, all.begin() + from + wanted, std::back_inserter(splits));
  }
}

// For what the jobs will find.
void HistogramSearch::make_room(std::vector<Job>& jobs) {
  for (Job& job : jobs) {
    job.proposals = proposals_.size();
    for (int32_t node : {job.build, job.subtract}) {
      if (node < 0) continue;
      Proposals& found = proposals_.add();
      found.node = node;
      found.splits.resize(static_cast<size_t>(scope_->n_parts()) * per_part_);
      for (TileSplit& split : found.splits) split.feature = -1;
    }
  }
}

std::vector<HistogramSearch::Job> HistogramSearch::plan(const std::vector<SearchNode>& nodes) {
  std::vector<Job> jobs;
  const auto direct = [&](int32_t i) {
    Node& node = nodes_[i];
    if (!scope_->can_split(node.at)) return;
    Job job;
    job.build = i;
    job.by_rows = !context_.is_distributed() && node.at.count <= ordered_rows_;
    job.few = !context_.is_distributed() && node.at.count <= kLabelRows;
    if (!job.by_rows && keeps_histogram(node)) node.histogram = pool_.take();
    job.keep = node.histogram >= 0;
    jobs.push_back(job);
  };
  if (nodes.size() == 1) {
    direct(nodes[0].id);
    return jobs;
  }
  for (size_t p = 0; p + 1 < nodes.size(); p += 2) {
    Node& left = nodes_[nodes[p].id];
    Node& right = nodes_[nodes[p + 1].id];
    const int parent = left.histogram;  // handed down by `split`
    left.histogram = right.histogram = -1;
    const bool left_smaller = left.at.count <= right.at.count;
    Node& larger = left_smaller ? right : left;
    if (parent < 0 || !scope_->can_split(larger.at) || larger.at.count <= direct_rows_) {
      if (parent >= 0) pool_.give_back(parent);
      direct(nodes[p].id);
      direct(nodes[p + 1].id);
      continue;
    }
    Job job;
    job.build = left_smaller ? nodes[p].id : nodes[p + 1].id;
    job.subtract = left_smaller ? nodes[p + 1].id : nodes[p].id;
    job.parent = parent;
    larger.histogram = parent;
    Node& smaller = nodes_[job.build];
    if (scope_->can_split(smaller.at) && keeps_histogram(smaller)) smaller.histogram = pool_.take();
    job.keep = smaller.histogram >= 0;
    jobs.push_back(job);
  }
  return jobs;
}

// QuantisedGradients of the rows to be read, next to each other: read once per tile. SparseColumns
// of sparse features are read for both siblings: there is nothing to subtract from.
void HistogramSearch::gather_channels(std::vector<Job>& jobs) {
  std::vector<GradientSource::Request> requests;
  const auto ask = [&](int32_t node) {
    requests.push_back(
        {node, nodes_[node].at.rows, nodes_[node].at.count, nullptr, &nodes_[node].totals});
  };
  for (const Job& job : jobs) ask(job.build);
  if (bins_.sparse_columns().n_features() > 0)
    for (const Job& job : jobs)
      if (job.subtract >= 0) ask(job.subtract);
  source_->fill(requests);
  size_t sibling = jobs.size();
  for (size_t j = 0; j < jobs.size(); ++j) {
    jobs[j].channels = requests[j].channels;
    nodes_[jobs[j].build].view = source_->view(jobs[j].build);
    if (jobs[j].subtract >= 0 && requests.size() > jobs.size())
      jobs[j].sibling_channels = requests[sibling++].channels;
  }
}

// Totals of the nodes from their rows, where they cannot come from the parent's split.
void HistogramSearch::sum_totals(const std::vector<Job>& jobs) {
  const HistogramKernels& kernels = POLYLEAF_SELECT(histogram_kernels);
  parallel_for(context_, static_cast<int64_t>(jobs.size()), [&](int64_t task, int) {
    Node& node = nodes_[jobs[task].build];
    node.totals.assign(layout_.lanes + 16, 0);
    kernels.sum(jobs[task].channels, node.size(), layout_.lanes, node.totals.data());
  });
  if (!context_.is_distributed()) return;
  std::vector<int64_t> sums;
  for (const Job& job : jobs)
    sums.insert(sums.end(), nodes_[job.build].totals.begin(), nodes_[job.build].totals.end());
  context_.allreduce_sum(sums);
  for (size_t j = 0; j < jobs.size(); ++j) {
    std::vector<int32_t>& totals = nodes_[jobs[j].build].totals;
    std::copy_n(sums.begin() + static_cast<int64_t>(j * totals.size()), totals.size(),
                totals.begin());
  }
}

// Sparse leaves: where the nodes' candidates need not be looked at closely.
void HistogramSearch::set_bounds(const std::vector<Job>& jobs) {
  if (scores().prune_bound == nullptr) return;
  const GrowConfig& config = scope_->config();
  const double needed =
      2.0 * layout_.n_outputs * config.split.min_split_gain;  // above the node's own sum
  parallel_for(context_, static_cast<int64_t>(2 * jobs.size()), [&](int64_t task, int thread) {
    const Job& job = jobs[task / 2];
    const int32_t i = task % 2 == 0 ? job.build : job.subtract;
    if (i < 0 || !scope_->can_split(nodes_[i].at)) return;
    const ScanNode node = scan_node(nodes_[i], thread);
    nodes_[i].prune_bound = scores().prune_bound(node);
    nodes_[i].floor =
        config.post_prune || chance_.variance > 0 ||
                !config.factors.empty()  // the largest sum need not win
            ? -std::numeric_limits<float>::infinity()
            : static_cast<float>((scores().node_sum(node) + needed) * (1.0 - kMinRelativeGain));
  });
}

// Where there are fewer tiles than work for all threads, the rows of large nodes are cut into
// chunks whose histograms are added up: integers, so the cut leaves no trace.
void HistogramSearch::build_chunks(std::vector<Job>& jobs) {
  const std::vector<int>& tiles = scope_->tiles();
  const int64_t n_tiles = static_cast<int64_t>(tiles.size());
  const int64_t n_tasks = static_cast<int64_t>(jobs.size()) * n_tiles;
  if (context_.n_threads == 1 || n_tasks == 0 || n_tasks >= 4 * context_.n_threads) return;
  const int64_t wanted = (4 * context_.n_threads + n_tasks - 1) / n_tasks;
  struct Piece {
    size_t job;
    int tile, chunk;
  };
  std::vector<Piece> pieces;
  for (size_t j = 0; j < jobs.size(); ++j) {
    Job& job = jobs[j];
    job.chunks = static_cast<int>(
        std::max<int64_t>(1, std::min<int64_t>(wanted, nodes_[job.build].size() / kChunkRows)));
    if (job.chunks == 1) continue;
    job.first_chunk = pieces.size();
    for (int t : tiles)
      for (int c = 0; c < job.chunks; ++c) pieces.push_back({j, t, c});
  }
  if (pieces.empty()) return;
  if (chunk_.size() < pieces.size()) chunk_.resize(pieces.size());
  parallel_for(context_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int thread) {
    const Piece& piece = pieces[task];
    const Job& job = jobs[piece.job];
    const Node& node = nodes_[job.build];
    const ChannelLayout& layout = *node.view.layout;
    const int t = piece.tile;
    const Tile& tile = bins_.tile(t);
    const size_t n_bins = static_cast<size_t>(tile.n_features) * tile.stride();
    Buffer<int32_t>& buffer = chunk_[task];
    buffer.reserve(n_bins * (layout.lanes + 1) + 16);
    std::memset(buffer.data(), 0, sizeof(int32_t) * n_bins * (layout.lanes + 1));
    const int64_t begin = node.size() * piece.chunk / job.chunks;
    const int64_t end = node.size() * (piece.chunk + 1) / job.chunks;
    uint32_t* counts = layout.count_lane < 0
                           ? reinterpret_cast<uint32_t*>(buffer.data() + n_bins * layout.lanes)
                           : nullptr;
    build_rows(job, t, begin, end, {buffer.data(), counts}, thread);
  });
}

// Tiles come first, groups of sparse features behind them.
void HistogramSearch::run_part(const Job& job, int part, int thread) {
  const int n_tiles = static_cast<int>(scope_->tiles().size());
  const size_t first = static_cast<size_t>(part) * per_part_;
  TileSplit* of_built = &proposals_[job.proposals].splits[first];
  TileSplit* of_sibling =
      job.subtract >= 0 ? &proposals_[job.proposals + 1].splits[first] : nullptr;
  if (part < n_tiles) return run_tile(job, part, thread, of_built, of_sibling);
  if (scope_->can_split(nodes_[job.build].at))
    scan_group(job.build, part - n_tiles, job.channels, thread, of_built);
  if (of_sibling != nullptr)
    scan_group(job.subtract, part - n_tiles, job.sibling_channels, thread, of_sibling);
}

// Builds one tile of a job's histogram, subtracts it from the parent's, and scans both.
void HistogramSearch::run_tile(const Job& job, int tile_index, int thread, TileSplit* of_built,
                               TileSplit* of_sibling) {
  if (context_.is_distributed() && !shared_.is_own(tile_index)) return;
  const int t = scope_->tiles()[tile_index];
  const Tile& tile = bins_.tile(t);
  const Node& node = nodes_[job.build];
  Scratch& scratch = scratch_[thread];
  const uint64_t* rows = job.by_rows || job.few ? words_of_all(node, t, thread) : nullptr;
  Slots slots = slots_of(node, tile);
  if (job.by_rows || job.few) leave_out_constant(rows, node.size(), slots);
  const bool for_others = job.keep || job.subtract >= 0;
  if (!for_others && slots == Slots{}) return;
  if (job.by_rows && !has_categories(t)) return scan_by_rows(job, t, rows, slots, thread, of_built);

  const int lanes = node.view.layout->lanes;
  const bool counts_apart = node.view.layout->count_lane < 0;
  const TileBins bins = job.keep ? pool_.tile(node.histogram, t) : scratch.bins(counts_apart);
  if (context_.is_distributed())
    bins.copy(shared_.bins(job.shared, tile_index, *node.view.layout), tile, lanes);
  else if (!job.few)
    bins.clear(tile, lanes);
  else if (!scratch.clean)
    scratch.clear();
  if (!job.keep) scratch.clean = job.few;
  if (!context_.is_distributed()) build_tile(job, tile_index, bins, thread);
  if (of_sibling != nullptr) {
    const TileBins parent = pool_.tile(job.parent, t);
    parent.subtract(bins, tile, layout_.lanes);
    scan(job.subtract, t, {parent.sums, parent.counts, nullptr},
         slots_of(nodes_[job.subtract], tile), thread, of_sibling);
  }
  uint64_t touched[kTileFeatures * 4] = {};
  if (job.few)
    POLYLEAF_SELECT(histogram_kernels).touch(rows, node.size(), tile.n_features, touched);
  if (scope_->can_split(node.at))
    scan(job.build, t, {bins.sums, bins.counts, job.few ? touched : nullptr}, slots, thread,
         of_built);
  if (job.few) bins.clear_touched(tile, rows, node.size(), lanes);
}

// The words of a small node's rows, all at once.
const uint64_t* HistogramSearch::words_of_all(const Node& node, int t, int thread) {
  Buffer<uint64_t>& room = scratch_[thread].words;
  if (scope_->partition().needs_gather(node.at.rows))
    room.reserve(static_cast<size_t>(node.size()) + 8);
  return scope_->partition().words(node.at.rows, t, 0, node.size(), room.data());
}

// Adds rows begin .. end - 1 of the node that a job builds to one tile's bins.
void HistogramSearch::build_rows(const Job& job, int t, int64_t begin, int64_t end,
                                 const TileBins& bins, int thread) {
  const HistogramKernels& kernels = POLYLEAF_SELECT(histogram_kernels);
  const Tile& tile = bins_.tile(t);
  const int64_t n_bins = int64_t{tile.n_features} * tile.stride();
  const PackedSumFormat& format = joint_[t].format;
  const int64_t n_runs = joint_[t].in_runs ? static_cast<int64_t>(joint_runs_[t].size()) : 1;
  if (format.rows > 0 && end - begin >= kJointRows * n_bins * n_runs) {
    uint64_t* joint = scratch_[thread].joint.data();
    for (int64_t i = begin, last; i < end; i = last) {
      last = end_of_joint(job, t, i, end);
      const HostRowPartitioner::Words from =
          scope_->partition().locate_words(nodes_[job.build].at.rows, t, i);
      kernels.build_joint(from.words, from.ids, job.channels + i * PackedSumFormat::kChannels,
                          last - i, tile.n_features, tile.log2_stride, format, joint);
      kernels.spread(joint, n_bins, format, bins.sums);
    }
    return;
  }
  const int lanes = nodes_[job.build].view.layout->lanes;
  const bool riding = rides(job, t, end - begin);
  for (int64_t i = begin, last; i < end; i = last) {
    last = riding ? end_of_run(job, runs_[t], i, end) : end;
    with_words(job, t, i, last, thread,
               [&](const uint64_t* words, const int16_t* channels, int64_t n) {
                 kernels.build(words, channels, n, tile.n_features, tile.log2_stride, lanes, riding,
                               bins.sums, bins.counts);
               });
    if (riding)
      kernels.unpack_counts(bins.sums, n_bins, lanes, last == end, scratch_[thread].below.data(),
                            bins.counts);
  }
}

// Whether counts of so many rows ride: they are taken out of the sums bin by bin, after each run.
bool HistogramSearch::rides(const Job& job, int t, int64_t n_rows) const {
  if (runs_.empty() || !may_ride(*nodes_[job.build].view.layout)) return false;
  const Tile& tile = bins_.tile(t);
  return 2 * n_rows >=
         int64_t{tile.n_features} * tile.stride() * static_cast<int64_t>(runs_[t].size());
}

// The first row, of rows i .. end - 1 of the node that a job builds, that is not of row i's run;
// rows of a node ascend.
int64_t HistogramSearch::end_of_run(const Job& job, const std::vector<uint32_t>& ends, int64_t i,
                                    int64_t end) const {
  const RowRange& rows = nodes_[job.build].at.rows;
  const uint32_t* ids = scope_->partition().ids(rows);
  const int64_t row = ids == nullptr ? rows.begin + i : ids[i];
  const uint32_t run_end = *std::upper_bound(ends.begin(), ends.end(), row);
  if (ids == nullptr) return std::min<int64_t>(end, run_end - rows.begin);
  return std::lower_bound(ids + i, ids + end, run_end) - ids;
}

// Where numbers must be spread.
int64_t HistogramSearch::end_of_joint(const Job& job, int t, int64_t i, int64_t end) const {
  const Joint& joint = joint_[t];
  if (joint.in_runs) return end_of_run(job, joint_runs_[t], i, end);
  return joint.format.rows == most_rows_[t] ? end : std::min(end, i + joint.format.rows);
}

// Calls add(words, channels, n) for these rows of the node that a job builds, so many at a time as
// are fetched at once.
template <class Add>
void HistogramSearch::with_words(const Job& job, int t, int64_t begin, int64_t end, int thread,
                                 const Add& add) {
  const HostRowPartitioner& partition = scope_->partition();
  const Node& node = nodes_[job.build];
  const int lanes = node.view.layout->lanes;
  Buffer<uint64_t>& room = scratch_[thread].fetched;
  if (partition.needs_gather(node.at.rows)) room.reserve(kGatherWords + 8);
  const int64_t at_once =
      std::max<int64_t>(1, partition.word_block_size(node.at.rows, end - begin));
  for (int64_t i = begin; i < end; i += at_once) {
    const int64_t n = std::min(at_once, end - i);
    add(partition.words(node.at.rows, t, i, n, room.data()), job.channels + i * lanes, n);
  }
}

void HistogramSearch::build_tile(const Job& job, int tile_index, const TileBins& bins, int thread) {
  const HistogramKernels& kernels = POLYLEAF_SELECT(histogram_kernels);
  const int t = scope_->tiles()[tile_index];
  const Tile& tile = bins_.tile(t);
  const Node& node = nodes_[job.build];
  const int lanes = node.view.layout->lanes;
  if (job.chunks == 1) return build_rows(job, t, 0, node.size(), bins, thread);
  const int64_t n_bins = int64_t{tile.n_features} * tile.stride();
  for (int c = 0; c < job.chunks; ++c) {
    const Buffer<int32_t>& part =
        chunk_[job.first_chunk + static_cast<size_t>(tile_index) * job.chunks + c];
    kernels.add(bins.sums, part.data(), n_bins * lanes);
    if (bins.counts != nullptr)
      kernels.add(reinterpret_cast<int32_t*>(bins.counts), part.data() + n_bins * lanes, n_bins);
  }
}

bool HistogramSearch::has_categories(int t) const {
  const Tile& tile = bins_.tile(t);
  return std::any_of(tile.features, tile.features + tile.n_features,
                     [&](int f) { return bins_.is_categorical(f); });
}

// A small node with many outputs: no histogram is written, its rows are visited in order of each
// feature's bins.
void HistogramSearch::scan_by_rows(const Job& job, int t, const uint64_t* rows, const Slots& slots,
                                   int thread, TileSplit* out) {
  const Tile& tile = bins_.tile(t);
  const Node& node = nodes_[job.build];
  Scratch& scratch = scratch_[thread];
  uint32_t* counts = scratch.start.data() + kTileFeatures * 256;
  RowsByBin by_bin[kTileFeatures];
  for (int s = 0; s < tile.n_features; ++s) {
    if (!slots[s]) continue;
    uint32_t* start = scratch.start.data() + s * tile.stride();
    uint16_t* order = scratch.order.data() + s * node.size();
    POLYLEAF_SELECT(sum_kernels)
        .order_rows(rows, node.size(), s, tile.stride(), counts + s * tile.stride(), start, order);
    by_bin[s] = {job.channels, order, start};
  }
  scan(job.build, t, {nullptr, counts, nullptr, by_bin}, slots, thread, out);
}

ScanNode HistogramSearch::scan_node(const Node& node, int thread) const {
  ScanNode scanned{&scope_->config().split,
                   node.view.layout,
                   node.view.gradient_step,
                   node.view.hessian_step,
                   node.totals.data(),
                   static_cast<int32_t>(node.at.count),
                   scratch_[thread].workspace.data(),
                   node.view.linear,
                   node.prune_bound};
  scanned.categorical_overfit = chance_;
  if (directions_.any()) scanned = scanned.constrain(directions_, node.value_bounds);
  return apply_gain_factors(scanned, scope_->config());
}

Slots HistogramSearch::slots_of(const Node& node, const Tile& tile) const {
  const std::vector<uint8_t>& allowed = allowed_of(node);
  Slots slots = {};
  for (int s = 0; s < tile.n_features; ++s) slots[s] = allowed[tile.features[s]];
  return slots;
}

const std::vector<uint8_t>& HistogramSearch::allowed_of(const Node& node) const {
  return scope_->has_node_features() ? node.allowed : scope_->features();
}

// What other parts have found makes a scan faster; the best split of the node does not depend on
// it.
template <class Find>
void HistogramSearch::with_floor(Node& node, int thread, const Find& find) {
  ScanScratch& scratch = scratch_[thread].scan;
  std::atomic_ref<float> floor(node.floor);
  scratch.floor = floor.load(std::memory_order_relaxed);
  find(scratch);
  float found = floor.load(std::memory_order_relaxed);
  while (scratch.floor > found && !floor.compare_exchange_weak(found, scratch.floor)) {
  }
}

void HistogramSearch::scan(int32_t i, int t, const TileHistogram& histogram, const Slots& slots,
                           int thread, TileSplit* out) {
  Node& node = nodes_[i];
  const Tile& tile = bins_.tile(t);
  with_floor(node, thread, [&](ScanScratch& scratch) {
    if (per_part_ == 1)
      return find_best_tile_split(bins_, t, histogram, scan_node(node, thread), slots, scratch,
                                  *out);
    for (int first = 0, last; first < tile.n_features; first = last, ++out) {
      const int group = bins_.feature_group(tile.features[first]);
      Slots own = {};
      for (last = first;
           last < tile.n_features && bins_.feature_group(tile.features[last]) == group; ++last)
        own[last] = slots[last];
      find_best_tile_split(bins_, t, histogram, scan_node(node, thread), own, scratch, *out);
    }
  });
}

void HistogramSearch::scan_group(int32_t i, int group, const int16_t* channels, int thread,
                                 TileSplit* out) {
  Node& node = nodes_[i];
  const CellsToScan cells{&scope_->partition().sparse_partition(),
                          node.at.rows.cells,
                          bins_.sparse_columns().group_begin(group),
                          bins_.sparse_columns().group_begin(group + 1),
                          channels,
                          allowed_of(node).data(),
                          node.bounds.get()};
  with_floor(node, thread, [&](ScanScratch& scratch) {
    best_splits_of_cells(bins_, cells, scan_node(node, thread), scratch, scratch_[thread].cells,
                         out, per_part_);
  });
}

// Bounds on what sparse features are worth begin where a node has many cells, and are handed down.
void HistogramSearch::set_cell_bounds(const std::vector<Job>& jobs) {
  for (const Job& job : jobs)
    for (const int32_t i : {job.build, job.subtract}) {
      if (i < 0 || !scope_->can_split(nodes_[i].at)) continue;
      Node& node = nodes_[i];
      if (per_part_ > 1 || !source_->fixed() || !CellBounds::hold_for(scan_node(node)) ||
          !scope_->partition().sparse_partition().is_indexed(node.at.rows.cells)) {
        node.bounds.reset();
        continue;
      }
      node.floor = -std::numeric_limits<float>::infinity();
      if (node.bounds != nullptr) continue;
      node.bounds = std::make_unique<CellBounds>();
      node.bounds->start(bins_.sparse_columns().n_features());
    }
}

// To the child that has its parent's list of cells; the other one's rows leave it.
void HistogramSearch::hand_down_bounds(Node& parent, Node& left, Node& right) {
  std::unique_ptr<CellBounds> bounds = std::move(parent.bounds);
  const int32_t list = parent.at.rows.cells;
  if (bounds == nullptr || (left.at.rows.cells != list && right.at.rows.cells != list)) return;
  Node& keeper = left.at.rows.cells == list ? left : right;
  const RowRange& others = (left.at.rows.cells == list ? right : left).at.rows;
  const ScanNode node = scan_node(keeper);
  const uint32_t* ids = scope_->partition().ids(others);
  for (int64_t i = 0; i < others.size(); ++i) {
    const CellBounds::RowSums row = CellBounds::row_of(node, fixed_.row(ids[i]));
    for (const uint32_t key : bins_.sparse_columns().row_keys(ids[i])) bounds->leave(key >> 8, row);
  }
  bounds->renew(CellBounds::sums_of(node));
  keeper.bounds = std::move(bounds);
}

// The best of the tiles' splits, if it is admissible.
SplitInfo HistogramSearch::choose(const Proposals& proposals) {
  const TileSplit* best = best_of(proposals.splits);
  const float node_sum =
      best == nullptr ? 0.0f : scores().node_sum(scan_node(nodes_[proposals.node]));
  const SplitInfo choice = validate_gain(best, node_sum, layout_.n_outputs, scope_->config());
  take(proposals.node, choice.feature >= 0 ? best : nullptr);
  return choice;
}

void HistogramSearch::take(int32_t node, const TileSplit* split) {
  if (split != nullptr)
    nodes_[node].best = *split;
  else
    drop_histogram(nodes_[node]);
}

std::vector<const TileSplit*> sorted_by_gain(const std::vector<TileSplit>& splits) {
  std::vector<const TileSplit*> found;
  for (const TileSplit& split : splits)
    if (split.feature >= 0 && std::isfinite(split.sum)) found.push_back(&split);
  std::sort(found.begin(), found.end(),
            [](const TileSplit* a, const TileSplit* b) { return a->comes_before(*b); });
  return found;
}

SplitInfo to_split_info(const TileSplit& split, double gain) {
  return {gain, split.feature, split.bin, split.missing_left, split.set, split.left_count};
}

SplitInfo validate_gain(const TileSplit* best, float node_sum, int n_outputs,
                        const GrowConfig& config) {
  if (best == nullptr || !std::isfinite(best->sum)) return SplitInfo();
  const double sum = best->sum, difference = sum - node_sum;
  const double gain = 0.5 * difference / n_outputs;
  const bool pays = gain > config.split.min_split_gain && difference > kMinRelativeGain * sum;
  return config.post_prune || pays ? to_split_info(*best, gain) : SplitInfo();
}

}  // namespace polyleaf
