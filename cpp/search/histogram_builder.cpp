#include "search/histogram_builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kMinChunkRows = 4096;
constexpr int64_t kMinPackedRows = 16384;  // rows that pay for unpacking packed channels
constexpr int64_t kSmallRows = 192;        // nodes up to this size are built by touched bins
constexpr int64_t kPackedBinRows = 2;      // rows per bin of a tile from which channels are packed
constexpr int64_t kPackedRunRows = 2047;  // of a bin: a gradient, a Hessian and a count fit 64 bits
constexpr int kMaxPackedLanes = 64;       // with more lanes, counting rows takes little of the time
constexpr double kMinTileFraction = 0.4;  // with fewer tiles in use by a node nothing is kept

// Return whether counts can be packed into the sums of a lane: the layout has no count lane.
bool can_pack_count(const ChannelLayout& layout) {
  return layout.count_lane < 0 && layout.lanes <= kMaxPackedLanes;
}

}  // namespace

HistogramBuilder::HistogramBuilder(const Bins& bins, const Context& context,
                                   const ObjectPool<HistogramNode>& nodes)
    : bins_(bins), context_(context), nodes_(nodes), shared_(context) {
  scratch_.resize(context_.n_threads);
}

void HistogramBuilder::start(const TreeContext& tree, const ChannelLayout& layout,
                             bool has_fixed_gradients, bool sorts_rows) {
  tree_ = &tree;
  small_rows_ = sorts_rows ? kMaxSortedRows : kSmallRows;
  has_fixed_gradients_ = has_fixed_gradients;
  if (context_.is_distributed()) shared_.assign_tiles(bins_, tree.tiles(), layout);
  if (!is_laid_out_ || !(layout_ == layout)) {
    layout_ = layout;
    pool_.lay_out(bins_, layout_);
    set_size_thresholds();
    for (Scratch& s : scratch_) s.reserve(layout_, pool_.max_bins());
    is_laid_out_ = true;
  }
  pool_.start(tree.config().histogram_memory);
  find_count_runs();
}

// Find runs of rows short enough that bin counts fit in the spare bits of a sum.
void HistogramBuilder::find_count_runs() {
  if (!can_pack_count(layout_) || !count_runs_.empty()) return;
  if (bins_.is_external()) return;  // words may have to be read from a disk
  count_runs_ = bins_.find_row_runs(kMaxPackedCount, context_);
}

void HistogramBuilder::set_packed_formats(const int32_t* max_magnitudes) {
  packing_.assign(bins_.n_tiles(), {});
  if (max_magnitudes == nullptr || layout_.lanes != PackedSumFormat::kChannels) return;
  if (max_bin_rows_.empty()) {
    // External words may have to be read from a disk.
    if (bins_.n_rows() <= kMinPackedRows || bins_.is_external())
      max_bin_rows_.assign(bins_.n_tiles(), bins_.n_rows());
    else
      max_bin_rows_ = bins_.count_max_bin_rows(context_);
  }
  std::vector<ChannelRange> values(layout_.count_lane);
  for (int j = 0; j < layout_.count_lane; ++j)
    values[j] = {j < layout_.n_outputs ? -max_magnitudes[j] : 0, max_magnitudes[j]};
  for (const int t : tree_->tiles()) {
    // Packed numbers are unpacked bin by bin, which pays only after many rows.
    const PackedSumFormat format = PackedSumFormat::make(values, max_bin_rows_[t]);
    if (format.max_rows == max_bin_rows_[t] ||
        format.max_rows >= kPackedBinRows * count_bins(bins_.tile(t)))
      packing_[t] = {format};
    else if (bins_.n_rows() > kMinPackedRows && !bins_.is_external())
      packing_[t] = {PackedSumFormat::make(values, kPackedRunRows), true};
    if (packing_[t].format.max_rows < kPackedRunRows && packing_[t].in_runs) packing_[t] = {};
  }
  const bool needs_runs = std::any_of(packing_.begin(), packing_.end(),
                                      [](const Packing& packing) { return packing.in_runs; });
  if (needs_runs && packed_runs_.empty())
    packed_runs_ = bins_.find_row_runs(kPackedRunRows, context_);
}

void HistogramBuilder::Scratch::reserve(const ChannelLayout& layout, size_t max_bins) {
  sums.reserve(max_bins * layout.lanes + 16);
  counts.reserve(max_bins + 16);
  is_clear = false;
  rest.reserve(max_bins + 16);
  std::memset(rest.data(), 0, sizeof(int32_t) * rest.size());
  if (layout.lanes != PackedSumFormat::kChannels) return;
  packed.reserve(max_bins + 16);
  std::memset(packed.data(), 0, sizeof(uint64_t) * packed.size());
}

// Choose the node sizes from which a histogram, and subtraction, pay.
void HistogramBuilder::set_size_thresholds() {
  const int64_t n_dense = bins_.n_features() - bins_.sparse_columns().n_features();
  const double bins_per_feature =
      static_cast<double>(pool_.n_bins()) / static_cast<double>(std::max<int64_t>(1, n_dense));
  // Histograms that have to be sent cost more than reading rows.
  direct_rows_ = context_.is_distributed()
                     ? 0
                     : std::max(kSmallRows, count_direct_rows(bins_per_feature, layout_.lanes));
}

// Return whether children may be built from the node's histogram. Children of the last level are
// never scanned, and small children are built directly. Where a node scans few features only their
// tiles are built, and a child needs others.
bool HistogramBuilder::keeps_histogram(const HistogramNode& node) const {
  const GrowConfig& config = tree_->config();
  const double tile_fraction = 1.0 - std::pow(1.0 - config.colsample_bynode, kTileFeatures);
  return has_fixed_gradients_ && bins_.n_tiles() > 0 && tile_fraction >= kMinTileFraction &&
         (config.max_depth < 0 || node.at.depth + 1 < config.max_depth) &&
         node.at.count > count_unkept_rows(direct_rows_);
}

void HistogramBuilder::release(HistogramNode& node) {
  if (node.histogram >= 0) pool_.release(node.histogram);
  node.histogram = -1;
}

std::vector<HistogramJob> HistogramBuilder::plan(const std::vector<SearchNode>& batch,
                                                 ObjectPool<HistogramNode>& nodes) {
  std::vector<HistogramJob> jobs;
  const auto add_direct_job = [&](int32_t i) {
    HistogramNode& node = nodes[i];
    if (!tree_->can_split(node.at)) return;
    HistogramJob job;
    job.build = i;
    job.is_small = !context_.is_distributed() && node.at.count <= small_rows_;
    if (keeps_histogram(node)) node.histogram = pool_.acquire();
    job.keep = node.histogram >= 0;
    jobs.push_back(job);
  };
  if (batch.size() == 1) {
    add_direct_job(batch[0].id);
    return jobs;
  }
  for (size_t p = 0; p + 1 < batch.size(); p += 2) {
    HistogramNode& left = nodes[batch[p].id];
    HistogramNode& right = nodes[batch[p + 1].id];
    const int parent = left.histogram;  // passed on by HistogramSearch::split
    left.histogram = right.histogram = -1;
    const bool is_left_smaller = left.at.count <= right.at.count;
    HistogramNode& larger = is_left_smaller ? right : left;
    if (parent < 0 || !tree_->can_split(larger.at) || larger.at.count <= direct_rows_) {
      if (parent >= 0) pool_.release(parent);
      add_direct_job(batch[p].id);
      add_direct_job(batch[p + 1].id);
      continue;
    }
    HistogramJob job;
    job.build = is_left_smaller ? batch[p].id : batch[p + 1].id;
    job.subtract = is_left_smaller ? batch[p + 1].id : batch[p].id;
    job.parent = parent;
    larger.histogram = parent;
    HistogramNode& smaller = nodes[job.build];
    if (tree_->can_split(smaller.at) && keeps_histogram(smaller))
      smaller.histogram = pool_.acquire();
    job.keep = smaller.histogram >= 0;
    jobs.push_back(job);
  }
  return jobs;
}

void HistogramBuilder::build_chunks(std::vector<HistogramJob>& jobs) {
  const std::vector<int>& tiles = tree_->tiles();
  const int64_t n_threads = context_.n_threads;
  const int64_t n_tasks = static_cast<int64_t>(jobs.size() * tiles.size());
  if (n_threads == 1 || n_tasks == 0 || n_tasks >= 4 * n_threads) return;
  const bool is_packed = layout_.lanes == PackedSumFormat::kChannels;
  const int64_t min_rows = is_packed ? kMinPackedRows : kMinChunkRows;
  size_t n_sums = 0;
  for (HistogramJob& job : jobs) {
    job.n_chunks = static_cast<int>(std::clamp<int64_t>(nodes_[job.build].n_rows() / min_rows, 1,
                                                        (16 * n_threads + n_tasks - 1) / n_tasks));
    job.first_sums = n_sums;
    n_sums += tiles.size() * static_cast<size_t>(n_threads);
  }
  if (thread_sums_.size() < n_sums) thread_sums_.resize(n_sums);
  for (ThreadSums& sums : thread_sums_) sums.is_used = false;
  struct Chunk {
    const HistogramJob* job;
    size_t tile_index;
    int number;
  };
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < tiles.size(); ++i)
    for (const HistogramJob& job : jobs)
      for (int c = 0; job.n_chunks > 1 && c < job.n_chunks; ++c) chunks.push_back({&job, i, c});
  parallel_for(context_, static_cast<int64_t>(chunks.size()), [&](int64_t task, int thread) {
    const auto& [job, tile_index, number] = chunks[task];
    const HistogramNode& node = nodes_[job->build];
    const Tile& tile = bins_.tile(tiles[tile_index]);
    ThreadSums& sums = thread_sums_[job->first_sums + tile_index * n_threads + thread];
    const auto size = static_cast<size_t>(count_bins(tile) * (layout_.lanes + 1));
    sums.ints.reserve(size + 16);
    if (!sums.is_used) std::memset(sums.ints.data(), 0, sizeof(int32_t) * size);
    sums.is_used = true;
    add_rows(*job, tiles[tile_index], node.n_rows() * number / job->n_chunks,
             node.n_rows() * (number + 1) / job->n_chunks, sums.bins(tile, layout_), thread);
  });
}

void HistogramBuilder::allreduce_histograms(std::span<HistogramJob> jobs) {
  const auto n_tiles = static_cast<int64_t>(tree_->tiles().size());
  if (n_tiles == 0) return;
  std::vector<const ChannelLayout*> layouts;
  for (size_t j = 0; j < jobs.size(); ++j) {
    jobs[j].shared = j;
    layouts.push_back(nodes_[jobs[j].build].view.layout);
  }
  shared_.start(layouts);
  parallel_for(context_, static_cast<int64_t>(jobs.size()) * n_tiles,
               [&](int64_t task, int thread) {
                 const HistogramJob& job = jobs[task / n_tiles];
                 const auto tile = static_cast<int>(task % n_tiles);
                 const ChannelLayout& layout = *layouts[job.shared];
                 const TileBins bins = scratch_[thread].bins(layout.count_lane < 0);
                 bins.clear(bins_.tile(tree_->tiles()[tile]), layout.lanes);
                 add_tile(job, tile, bins, thread);
                 shared_.pack(job.shared, tile, bins);
               });
  shared_.exchange();
}

const uint64_t* HistogramBuilder::load_words(const HistogramNode& node, int t, int thread) {
  Buffer<uint64_t>& words = scratch_[thread].words;
  if (tree_->partition().needs_gather(node.at.rows))
    words.reserve(static_cast<size_t>(node.n_rows()) + 8);
  return tree_->partition().words(node.at.rows, t, 0, node.n_rows(), words.data());
}

TileBins HistogramBuilder::build(const HistogramJob& job, int tile_index, int thread) {
  const int t = tree_->tiles()[tile_index];
  const Tile& tile = bins_.tile(t);
  const HistogramNode& node = nodes_[job.build];
  const ChannelLayout& layout = *node.view.layout;
  Scratch& scratch = scratch_[thread];
  const TileBins bins =
      job.keep ? pool_.tile(node.histogram, t) : scratch.bins(layout.count_lane < 0);
  if (!job.is_small && (job.n_chunks == 1 || context_.is_distributed()))
    bins.clear(tile, layout.lanes);
  else if (!scratch.is_clear)
    scratch.clear();
  if (!job.keep) scratch.is_clear = job.is_small;
  if (context_.is_distributed())
    shared_.add(job.shared, tile_index, bins);
  else
    add_tile(job, tile_index, bins, thread);
  return bins;
}

TileBins HistogramBuilder::subtract(const HistogramJob& job, int t, const TileBins& bins) {
  const TileBins parent = pool_.tile(job.parent, t);
  parent.subtract(bins, bins_.tile(t), layout_.lanes);
  return parent;
}

// Add the rows of the job's node to one tile's bins.
void HistogramBuilder::add_tile(const HistogramJob& job, int tile_index, const TileBins& bins,
                                int thread) {
  const HistogramKernels& kernels = POLYLEAF_SELECT(histogram_kernels);
  const int t = tree_->tiles()[tile_index];
  const HistogramNode& node = nodes_[job.build];
  const int lanes = node.view.layout->lanes;
  if (job.n_chunks == 1) return add_rows(job, t, 0, node.n_rows(), bins, thread);
  const Tile& tile = bins_.tile(t);
  bool is_first = true;
  for (int other = 0; other < context_.n_threads; ++other) {
    ThreadSums& sums =
        thread_sums_[job.first_sums + static_cast<size_t>(tile_index) * context_.n_threads + other];
    if (!sums.is_used) continue;
    const TileBins part = sums.bins(tile, layout_);
    if (is_first) {
      bins.copy(part, tile, lanes);
    } else {
      kernels.add(bins.sums, part.sums, count_bins(tile) * lanes);
      if (bins.counts != nullptr)
        kernels.add(reinterpret_cast<int32_t*>(bins.counts),
                    reinterpret_cast<const int32_t*>(part.counts), count_bins(tile));
    }
    is_first = false;
  }
}

// Add rows begin .. end - 1 of the job's node to one tile's bins.
void HistogramBuilder::add_rows(const HistogramJob& job, int t, int64_t begin, int64_t end,
                                const TileBins& bins, int thread) {
  const HistogramKernels& kernels = POLYLEAF_SELECT(histogram_kernels);
  const Tile& tile = bins_.tile(t);
  const int64_t n_bins = count_bins(tile);
  const PackedSumFormat& format = packing_[t].format;
  const int64_t n_runs = packing_[t].in_runs ? static_cast<int64_t>(packed_runs_[t].size()) : 1;
  if (format.max_rows > 0 && end - begin >= kPackedBinRows * n_bins * n_runs) {
    uint64_t* packed = scratch_[thread].packed.data();
    for (int64_t i = begin, last; i < end; i = last) {
      last = find_packed_end(job, t, i, end);
      const HostRowPartitioner::Words from =
          tree_->partition().locate_words(nodes_[job.build].at.rows, t, i);
      kernels.build_packed(from.words, from.ids, job.channels + i * PackedSumFormat::kChannels,
                           last - i, tile.n_features, tile.log2_stride, format, packed);
      kernels.unpack_sums(packed, n_bins, format, bins.sums);
    }
    return;
  }
  const int lanes = nodes_[job.build].view.layout->lanes;
  const bool has_packed_count = packs_count(job, t, end - begin);
  for (int64_t i = begin, last; i < end; i = last) {
    last = has_packed_count ? find_run_end(job, count_runs_[t], i, end) : end;
    visit_words(job, t, i, last, thread,
                [&](const uint64_t* words, const int16_t* channels, int64_t n) {
                  kernels.build(words, channels, n, tile.n_features, tile.log2_stride, lanes,
                                has_packed_count, bins.sums, bins.counts);
                });
    if (has_packed_count)
      kernels.unpack_counts(bins.sums, n_bins, lanes, last == end, scratch_[thread].rest.data(),
                            bins.counts);
  }
}

// Return whether counts of so many rows are packed into sums: they are unpacked bin by bin, after
// each run.
bool HistogramBuilder::packs_count(const HistogramJob& job, int t, int64_t n_rows) const {
  if (count_runs_.empty() || !can_pack_count(*nodes_[job.build].view.layout)) return false;
  return 2 * n_rows >= count_bins(bins_.tile(t)) * static_cast<int64_t>(count_runs_[t].size());
}

// Return the first of rows i .. end of the job's node that is not in row i's run. The rows of a
// node ascend.
int64_t HistogramBuilder::find_run_end(const HistogramJob& job, const std::vector<uint32_t>& ends,
                                       int64_t i, int64_t end) const {
  const RowRange& rows = nodes_[job.build].at.rows;
  const uint32_t* ids = tree_->partition().ids(rows);
  const int64_t row = ids == nullptr ? rows.begin + i : ids[i];
  const uint32_t run_end = *std::upper_bound(ends.begin(), ends.end(), row);
  if (ids == nullptr) return std::min<int64_t>(end, run_end - rows.begin);
  return std::lower_bound(ids + i, ids + end, run_end) - ids;
}

// Return the first of rows i .. end before which packed numbers must be unpacked.
int64_t HistogramBuilder::find_packed_end(const HistogramJob& job, int t, int64_t i,
                                          int64_t end) const {
  const Packing& packing = packing_[t];
  if (packing.in_runs) return find_run_end(job, packed_runs_[t], i, end);
  return packing.format.max_rows == max_bin_rows_[t] ? end
                                                     : std::min(end, i + packing.format.max_rows);
}

// Call add(words, channels, n) for blocks of rows begin .. end - 1 of the job's node.
template <class Add>
void HistogramBuilder::visit_words(const HistogramJob& job, int t, int64_t begin, int64_t end,
                                   int thread, const Add& add) {
  const HostRowPartitioner& partition = tree_->partition();
  const HistogramNode& node = nodes_[job.build];
  const int lanes = node.view.layout->lanes;
  Buffer<uint64_t>& gathered = scratch_[thread].gathered;
  if (partition.needs_gather(node.at.rows)) gathered.reserve(kGatherWords + 8);
  const int64_t block = std::max<int64_t>(1, partition.word_block_size(node.at.rows, end - begin));
  for (int64_t i = begin; i < end; i += block) {
    const int64_t n = std::min(block, end - i);
    add(partition.words(node.at.rows, t, i, n, gathered.data()), job.channels + i * lanes, n);
  }
}

}  // namespace polyleaf
