#include "search/histogram_search.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kScanOperations = 512;  // least operations of a tile in a node

// Clear the flags of slots whose feature has one code in all rows: it has no split.
void exclude_constant(const uint64_t* words, int64_t n, Slots& slots) {
  uint64_t varying = 0;
  for (int64_t i = 1; i < n; ++i) varying |= words[i] ^ words[0];
  for (int s = 0; s < kTileFeatures; ++s) slots[s] &= (varying >> (8 * s) & 255) != 0;
}

bool has_categories(const Bins& bins, const Tile& tile) {
  return std::any_of(tile.features, tile.features + tile.n_features,
                     [&](int f) { return bins.is_categorical(f); });
}

}  // namespace

HistogramSearch::HistogramSearch(const Bins& bins, const Context& context)
    : bins_(bins),
      context_(context),
      fixed_(context),
      builder_(bins, context, nodes_),
      finder_(bins, context),
      shared_(bins, context) {}

void HistogramSearch::start(const TreeContext& tree, const SearchNode& root) {
  tree_ = &tree;
  source_->start(tree, root);
  layout_ = source_->layout();
  finder_.start(tree, layout_);
  builder_.start(tree, layout_, source_->fixed(), finder_.can_sort_rows());
  n_parts_ = tree_->n_parts();
  if (context_.is_distributed()) {
    shared_.start(layout_);
    n_parts_ = static_cast<int>(tree_->tiles().size());
  }
  nodes_.clear();
  HistogramNode& added = add_node(root, source_->view(root.id));
  added.totals = source_->totals();
  added.output_bounds = finder_.make_output_bounds();
  refresh({});
}

// Set what depends on the gradients; drop what the nodes have inherited.
void HistogramSearch::refresh(const std::vector<SearchNode>& nodes) {
  for (const SearchNode& node : nodes) {
    builder_.release(nodes_[node.id]);
    nodes_[node.id].gain_bounds.reset();
    nodes_[node.id].output_bounds = finder_.make_output_bounds();
  }
  builder_.set_packed_formats(source_->view(0).max_magnitudes);
  finder_.set_categorical_overfit(tree_->has_sorted_categories() ? source_->categorical_overfit()
                                                                 : CategoricalOverfit());
}

HistogramNode& HistogramSearch::add_node(const SearchNode& at, const ChannelView& view) {
  HistogramNode& node = nodes_.add();
  node.at = at;
  node.view = view;
  node.histogram = -1;
  node.gain_bounds.reset();
  node.prune_bound = node.best_so_far = 0;
  return node;
}

void HistogramSearch::split(int32_t parent, const SearchNode& left, const SearchNode& right,
                            float* output_gain) {
  HistogramNode& node = nodes_[parent];
  if (source_->fixed())
    finder_.write_output_gains(node, output_gain);
  else
    source_->split(parent, node.best, finder_.scan_node(node), left, right, output_gain);
  const int histogram = node.histogram;  // the left child's until the pair is evaluated
  node.histogram = -1;
  HistogramNode& l = add_node(left, node.view);
  HistogramNode& r = add_node(right, node.view);
  l.totals = node.best.left;
  r.totals = node.totals;
  for (int j = 0; j < node.view.layout->lanes; ++j) r.totals[j] -= l.totals[j];
  l.histogram = histogram;
  finder_.pass_gain_bounds(node, l, r, fixed_);
  finder_.propagate_output_bounds(node, l, r);
}

double HistogramSearch::cover(int32_t node) const {
  return finder_.scores().node_hessian(finder_.scan_node(nodes_[node]));
}

void HistogramSearch::evaluate(const std::vector<SearchNode>& nodes, bool renewed,
                               std::vector<SplitInfo>& splits) {
  splits.assign(nodes.size(), SplitInfo());
  const ObjectPool<CandidateSplits>& candidates = propose(nodes, renewed);
  for (size_t i = 0; i < candidates.size(); ++i) {
    const int32_t id = candidates[i].node;
    const TileSplit* best = find_best(candidates[i].splits);
    POLYLEAF_DCHECK(nodes[id - nodes[0].id].id == id);
    SplitInfo& split = splits[id - nodes[0].id];  // the ids of a batch are consecutive
    split = finder_.choose(nodes_[id], best);
    select(id, split.feature >= 0 ? best : nullptr);
  }
}

const ObjectPool<CandidateSplits>& HistogramSearch::propose(const std::vector<SearchNode>& nodes,
                                                            bool renewed, size_t n_splits) {
  // Without sparse features a tile is a group of features.
  finder_.set_part_size(n_splits > 1 && bins_.sparse_columns().n_features() > 0 ? kTileFeatures
                                                                                : 1);
  for (const SearchNode& node : nodes) nodes_[node.id].at = node;
  if (renewed) refresh(nodes);
  std::vector<HistogramJob> jobs = builder_.plan(nodes, nodes_);
  candidates_.clear();
  if (jobs.empty()) return candidates_;
  if (tree_->has_node_features())
    parallel_for(context_, static_cast<int64_t>(nodes.size()), [&](int64_t i, int) {
      nodes_[nodes[i].id].allowed =
          tree_->can_split(nodes[i]) ? tree_->get_allowed_features(nodes[i]) : tree_->features();
    });
  gather_channels(jobs);
  if (renewed) sum_totals(jobs);
  builder_.build_chunks(jobs);
  set_bounds(jobs);
  allocate_candidates(jobs);
  const size_t batch = builder_.get_batch_size(jobs.size());
  for (size_t first = 0; first < jobs.size(); first += batch) {
    const std::span<HistogramJob> some =
        std::span(jobs).subspan(first, std::min(batch, jobs.size() - first));
    if (context_.is_distributed()) builder_.allreduce_histograms(some);
    run(some);
  }
  if (!context_.is_distributed()) return candidates_;
  run_shared_features(jobs);
  gather_best_splits(n_splits);
  return candidates_;
}

void HistogramSearch::select(int32_t node, const TileSplit* split) {
  if (split != nullptr)
    nodes_[node].best = *split;
  else
    builder_.release(nodes_[node]);
}

// Collect the channels of the rows to be read, contiguous. Nonzeros of sparse features are read for
// both siblings: they have no histogram to subtract from.
void HistogramSearch::gather_channels(std::vector<HistogramJob>& jobs) {
  std::vector<GradientSource::Request> requests;
  const auto add_request = [&](int32_t node) {
    requests.push_back(
        {node, nodes_[node].at.rows, nodes_[node].at.count, nullptr, &nodes_[node].totals});
  };
  for (const HistogramJob& job : jobs) add_request(job.build);
  if (bins_.sparse_columns().n_features() > 0)
    for (const HistogramJob& job : jobs)
      if (job.subtract >= 0) add_request(job.subtract);
  {
    const PhaseTimer timer(Phase::kHistograms);
    source_->fill(requests);
  }
  size_t sibling = jobs.size();
  for (size_t j = 0; j < jobs.size(); ++j) {
    jobs[j].channels = requests[j].channels;
    nodes_[jobs[j].build].view = source_->view(jobs[j].build);
    if (jobs[j].subtract >= 0 && requests.size() > jobs.size())
      jobs[j].sibling_channels = requests[sibling++].channels;
  }
}

// Return the number of rows that jobs build histograms of.
int64_t HistogramSearch::count_rows(std::span<const HistogramJob> jobs) const {
  int64_t n = 0;
  for (const HistogramJob& job : jobs) n += nodes_[job.build].n_rows();
  return n;
}

// Compute the totals of nodes from their rows, where they cannot come from the parent's split.
void HistogramSearch::sum_totals(const std::vector<HistogramJob>& jobs) {
  const HistogramKernels& kernels = POLYLEAF_SELECT(histogram_kernels);
  const Context context = context_.limit_operations(count_rows(jobs) * layout_.lanes);
  parallel_for(context, static_cast<int64_t>(jobs.size()), [&](int64_t task, int) {
    HistogramNode& node = nodes_[jobs[task].build];
    node.totals.assign(layout_.lanes + 16, 0);
    kernels.sum(jobs[task].channels, node.n_rows(), layout_.lanes, node.totals.data());
  });
  if (!context_.is_distributed()) return;
  std::vector<int64_t> sums;
  for (const HistogramJob& job : jobs)
    sums.insert(sums.end(), nodes_[job.build].totals.begin(), nodes_[job.build].totals.end());
  context_.allreduce_sum(sums);
  for (size_t j = 0; j < jobs.size(); ++j) {
    std::vector<int32_t>& totals = nodes_[jobs[j].build].totals;
    std::copy_n(sums.begin() + static_cast<int64_t>(j * totals.size()), totals.size(),
                totals.begin());
  }
}

void HistogramSearch::set_bounds(const std::vector<HistogramJob>& jobs) {
  if (finder_.has_prune_bounds())
    parallel_for(context_, static_cast<int64_t>(2 * jobs.size()), [&](int64_t task, int thread) {
      const HistogramJob& job = jobs[task / 2];
      const int32_t i = task % 2 == 0 ? job.build : job.subtract;
      if (i >= 0 && tree_->can_split(nodes_[i].at)) finder_.set_prune_bound(nodes_[i], thread);
    });
  if (bins_.sparse_columns().n_features() == 0 || context_.is_distributed()) return;
  for (const HistogramJob& job : jobs)
    for (const int32_t i : {job.build, job.subtract})
      if (i >= 0 && tree_->can_split(nodes_[i].at))
        finder_.set_gain_bounds(nodes_[i], source_->fixed());
}

void HistogramSearch::allocate_candidates(std::vector<HistogramJob>& jobs) {
  for (HistogramJob& job : jobs) {
    job.candidates = candidates_.size();
    for (int32_t node : {job.build, job.subtract}) {
      if (node < 0) continue;
      CandidateSplits& candidates = candidates_.add();
      candidates.node = node;
      candidates.splits.resize(static_cast<size_t>(n_parts_) * finder_.part_size());
      for (TileSplit& split : candidates.splits) split.feature = -1;
    }
  }
}

void HistogramSearch::run(std::span<HistogramJob> jobs) {
  const int n_parts = n_parts_;
  const int64_t n_jobs = static_cast<int64_t>(jobs.size());
  // The largest first: threads that are done wait for a small one.
  std::vector<const HistogramJob*> order;
  for (const HistogramJob& job : jobs) order.push_back(&job);
  std::stable_sort(order.begin(), order.end(), [&](const HistogramJob* a, const HistogramJob* b) {
    return nodes_[a->build].n_rows() > nodes_[b->build].n_rows();
  });
  const int64_t part_operations = n_jobs * kScanOperations + count_rows(jobs) * layout_.lanes;
  const Context context = context_.limit_operations(n_parts * part_operations);
  // Each thread begins with a group of parts of its own. They take turns, so that the channels of a
  // job stay in the cache; but external words may have to be read from a disk: finish one tile
  // before the next one.
  const int64_t n_groups = bins_.is_external() ? n_parts : std::min(n_parts, context.n_threads);
  parallel_for(context, n_jobs * n_parts, [&](int64_t task, int thread) {
    const int64_t group = task / n_jobs * n_groups / n_parts;
    const int64_t first = (group * n_parts + n_groups - 1) / n_groups;
    const int64_t size = ((group + 1) * n_parts + n_groups - 1) / n_groups - first;
    const int64_t i = task - first * n_jobs;
    run_part(*order[i / size], static_cast<int>(first + i % size), thread);
  });
}

// Tiles come first, groups of sparse features after them.
void HistogramSearch::run_part(const HistogramJob& job, int part, int thread) {
  const int n_tiles = static_cast<int>(tree_->tiles().size());
  const size_t first = static_cast<size_t>(part) * finder_.part_size();
  TileSplit* built = &candidates_[job.candidates].splits[first];
  TileSplit* sibling = job.subtract >= 0 ? &candidates_[job.candidates + 1].splits[first] : nullptr;
  if (part < n_tiles) return run_tile(job, part, thread, built, sibling);
  const PhaseTimer timer(Phase::kSplitFinding);
  if (tree_->can_split(nodes_[job.build].at))
    finder_.scan_sparse(nodes_[job.build], part - n_tiles, job.channels, thread, built);
  if (sibling != nullptr)
    finder_.scan_sparse(nodes_[job.subtract], part - n_tiles, job.sibling_channels, thread,
                        sibling);
}

// Build one tile of a job's histogram, subtract it from the parent's, and scan both.
void HistogramSearch::run_tile(const HistogramJob& job, int tile_index, int thread,
                               TileSplit* built, TileSplit* sibling) {
  if (!builder_.owns_tile(tile_index)) return;
  PhaseTimer timer(Phase::kHistograms);
  const int t = tree_->tiles()[tile_index];
  const Tile& tile = bins_.tile(t);
  HistogramNode& node = nodes_[job.build];
  const uint64_t* words = job.is_small ? builder_.load_words(node, t, thread) : nullptr;
  Slots slots = finder_.get_allowed_slots(node, tile);
  if (job.is_small && finder_.can_sort_rows() && !has_categories(bins_, tile)) {
    timer.next(Phase::kSplitFinding);
    return finder_.scan_sorted_rows(node, t, words, job.channels, slots, thread, built);
  }
  if (words != nullptr) exclude_constant(words, node.n_rows(), slots);
  const bool is_needed = job.keep || job.subtract >= 0;
  if (!is_needed && slots == Slots{}) return;

  const TileBins bins = builder_.build(job, tile_index, thread);
  if (sibling != nullptr) {
    HistogramNode& other = nodes_[job.subtract];
    const TileBins rest = builder_.subtract(job, t, bins);
    timer.next(Phase::kSplitFinding);
    finder_.scan_tile(other, t, {rest.sums, rest.counts, nullptr},
                      finder_.get_allowed_slots(other, tile), thread, sibling);
  }
  uint64_t touched[kTileFeatures * 4] = {};
  timer.next(Phase::kSplitFinding);
  if (job.is_small)
    POLYLEAF_SELECT(histogram_kernels).mark_touched(words, node.n_rows(), tile.n_features, touched);
  if (tree_->can_split(node.at))
    finder_.scan_tile(node, t, {bins.sums, bins.counts, job.is_small ? touched : nullptr}, slots,
                      thread, built);
  if (job.is_small) bins.clear_touched(tile, words, node.n_rows(), node.view.layout->lanes);
}

// Scan sparse features in distributed training.
void HistogramSearch::run_shared_features(const std::vector<HistogramJob>& jobs) {
  struct Scan {
    HistogramNode* node;
    std::vector<TileSplit>* splits;
  };
  std::vector<Scan> scans;
  std::vector<SharedSparseBins::Node> nodes;
  const auto add_node = [&](int32_t i, const int16_t* channels, size_t candidates) {
    if (i < 0 || !tree_->can_split(nodes_[i].at)) return;
    scans.push_back({&nodes_[i], &candidates_[candidates].splits});
    nodes.push_back({nodes_[i].view.layout, nodes_[i].at.rows.entry_list, channels,
                     finder_.get_allowed(nodes_[i]).data()});
  };
  for (const HistogramJob& job : jobs) {
    add_node(job.build, job.channels, job.candidates);
    add_node(job.subtract, job.sibling_channels, job.candidates + 1);
  }
  if (nodes.empty()) return;
  const auto& lists = tree_->partition().sparse_partition();
  const int n_batches =
      shared_.plan(lists, nodes, std::max(1, tree_->config().split.min_child_samples));
  const int64_t n_threads = context_.n_threads;
  const auto n_splits = static_cast<size_t>(n_threads * finder_.part_size());
  for (int batch = 0; batch < n_batches; ++batch) {
    PhaseTimer timer(Phase::kHistograms);
    shared_.exchange(batch);
    timer.next(Phase::kSplitFinding);
    for (const Scan& scan : scans) scan.splits->resize(scan.splits->size() + n_splits);
    const auto [first, last] = shared_.features(batch);
    parallel_for(context_, static_cast<int64_t>(scans.size()) * n_threads,
                 [&, first = first, last = last](int64_t task, int thread) {
                   const auto i = static_cast<size_t>(task / n_threads);
                   const int64_t part = task % n_threads, n = last - first;
                   TileSplit* out = scans[i].splits->data() + scans[i].splits->size() - n_splits +
                                    part * finder_.part_size();
                   finder_.scan_shared(*scans[i].node, first + n * part / n_threads,
                                       first + n * (part + 1) / n_threads, shared_.bins(i), thread,
                                       out);
                 });
  }
}

// Replace the best splits of each part by the best splits of each rank.
void HistogramSearch::gather_best_splits(size_t n_splits) {
  std::vector<TileSplit> own;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    std::vector<const TileSplit*> best = {find_best(candidates_[i].splits)};
    if (n_splits > 1) best = find_best_of_groups(candidates_[i].splits, bins_, n_splits);
    best.resize(n_splits, nullptr);
    for (const TileSplit* split : best) own.push_back(split != nullptr ? *split : TileSplit());
  }
  std::vector<TileSplit> all = builder_.allgather_splits(own);
  for (size_t i = 0; i < candidates_.size(); ++i) {
    std::vector<TileSplit>& splits = candidates_[i].splits;
    splits.clear();
    for (size_t from = i * n_splits; from < all.size(); from += own.size())
      std::move(all.begin() + from, all.begin() + from + n_splits, std::back_inserter(splits));
  }
}

}  // namespace polyleaf
