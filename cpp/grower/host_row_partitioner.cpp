#include "grower/host_row_partitioner.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kMoveBlock = 2048;       // rows moved by one task
constexpr int64_t kLeafIdBlock = 8192;     // rows whose leaf ids one task writes
constexpr int64_t kWordsPerCacheLine = 8;  // 64-bit words of a cache line

// A block of rows of one request, and its destination.
struct Piece {
  size_t request;
  int64_t begin, end;  // positions in the node's copy of the ids
  int64_t bits;        // offset of its first bit
  int64_t n_left = 0, left_to = 0, right_to = 0;
};

int64_t count_rows(const std::vector<RowPartitioner::PartitionRequest>& requests) {
  int64_t n = 0;
  for (const RowPartitioner::PartitionRequest& request : requests) n += request.rows.size();
  return n;
}

// Return the offset of each request's bits, and the total size.
std::vector<int64_t> first_bytes(
    const std::vector<HostRowPartitioner::PartitionRequest>& requests) {
  std::vector<int64_t> first(1, 0);
  for (const HostRowPartitioner::PartitionRequest& d : requests)
    first.push_back(first.back() + Block::count(d.rows.size(), kMoveBlock) * (kMoveBlock / 8));
  return first;
}

std::vector<Piece> make_pieces(const std::vector<HostRowPartitioner::PartitionRequest>& requests) {
  const std::vector<int64_t> bytes = first_bytes(requests);
  std::vector<Piece> pieces;
  for (size_t i = 0; i < requests.size(); ++i) {
    const RowRange& rows = requests[i].rows;
    for (int64_t b = rows.begin; b < rows.end; b += kMoveBlock)
      pieces.push_back({i, b, std::min(b + kMoveBlock, rows.end), bytes[i] + (b - rows.begin) / 8});
  }
  return pieces;
}

// Set the destination of each piece: after the pieces before it; rows of the right child follow
// those of the left child.
void place_rows(std::vector<Piece>& pieces,
                std::vector<HostRowPartitioner::PartitionRequest>& requests) {
  for (HostRowPartitioner::PartitionRequest& d : requests)
    d.left = {d.rows.begin, d.rows.begin, d.rows.copy == 1 ? 2 : 1};
  for (Piece& p : pieces) {
    p.left_to = requests[p.request].left.end;
    requests[p.request].left.end += p.n_left;
  }
  for (HostRowPartitioner::PartitionRequest& d : requests)
    d.right = {d.left.end, d.left.end, d.left.copy};
  for (Piece& p : pieces) {
    p.right_to = requests[p.request].right.end;
    requests[p.request].right.end += p.end - p.begin - p.n_left;
  }
}

}  // namespace

HostRowPartitioner::HostRowPartitioner(const Bins& bins, const Context& context)
    : bins_(bins),
      context_(context),
      right_words_(context.n_threads),
      sparse_partition_(bins.sparse_columns(), context) {
  for (auto& words : words_) words.resize(bins.n_tiles());
  leaf_of_row_.reserve(bins.n_rows());
}

RowRange HostRowPartitioner::start(const RowSample& sample, const std::vector<int>& tiles) {
  tiles_ = tiles;
  set_sample(sample);
  is_sample_ = sample.rows != nullptr;
  std::vector<RowRange> root = {{0, sample.n_used()}};
  if (is_sample_) {
    ids_[0].reserve(rows_.size());
    std::copy(rows_.begin(), rows_.end(), ids_[0].data());
    fetch_words({&root[0]});
    sparse_partition_.group(ids_[0].data(), bins_.n_rows(), root);
  } else {
    root[0].entry_list = sparse_partition_.start();
  }
  return root[0];
}

// Copy the sample: the caller's array may be freed before the tree is finished.
void HostRowPartitioner::set_sample(const RowSample& sample) {
  sample_ = sample;
  POLYLEAF_DCHECK(sample.n_all == bins_.n_rows());
  if (sample.rows == nullptr) return;
  POLYLEAF_DCHECK(std::is_sorted(sample.rows, sample.rows + sample.n_rows, std::less_equal<>()));
  POLYLEAF_DCHECK(sample.n_rows == 0 || sample.rows[sample.n_rows - 1] < sample.n_all);
  rows_.assign(sample.rows, sample.rows + sample.n_rows);
  sample_.rows = non_null_data(rows_.data(), rows_.size());
}

// Return whether a node is so small that its words should be copied next to each other: most of
// every cache line would belong to other nodes.
bool HostRowPartitioner::is_small_node(int64_t n_rows) const {
  return !bins_.is_external() && n_rows < bins_.n_rows() / kWordsPerCacheLine;
}

// Copy the words of small nodes that have no copy yet.
void HostRowPartitioner::fetch_words(const std::vector<RowRange*>& ranges) {
  const PartitionKernels& move = POLYLEAF_SELECT(partition_kernels);
  std::vector<RowRange> blocks;
  for (RowRange* range : ranges) {
    if (range->words != 0 || !is_small_node(range->size())) continue;
    for (int64_t b = range->begin; b < range->end; b += kMoveBlock)
      blocks.push_back({b, std::min(b + kMoveBlock, range->end), range->copy});
    range->words = 1;
  }
  if (blocks.empty()) return;
  for (int t : tiles_) words_[0][t].reserve(sample_.n_used());
  const auto n_blocks = static_cast<int64_t>(blocks.size());
  const int64_t n_tasks = n_blocks * static_cast<int64_t>(tiles_.size());
  parallel_for(context_.limit_operations(n_tasks * kMoveBlock), n_tasks, [&](int64_t task, int) {
    const int t = tiles_[task / n_blocks];
    const RowRange& rows = blocks[task % n_blocks];
    move.gather_words(bins_.words(t), ids(rows), rows.size(), words_at(1, t, rows.begin));
  });
}

HostRowPartitioner::Words HostRowPartitioner::locate_words(const RowRange& rows, int tile,
                                                           int64_t first) const {
  if (rows.words != 0) return {words_[rows.words - 1][tile].data() + rows.begin + first, nullptr};
  const uint32_t* from = ids(rows);
  if (from == nullptr) return {bins_.words(tile) + rows.begin + first, nullptr};
  return {bins_.words(tile), from + first};
}

const uint64_t* HostRowPartitioner::words(const RowRange& rows, int tile, int64_t first, int64_t n,
                                          uint64_t* buffer) const {
  POLYLEAF_DCHECK(first >= 0 && n >= 0 && first + n <= rows.size());
  const Words from = locate_words(rows, tile, first);
  if (from.ids == nullptr) return from.words;
  POLYLEAF_SELECT(partition_kernels).gather_words(from.words, from.ids, n, buffer);
  return buffer;
}

bool HostRowPartitioner::has(const RowSample& sample) const {
  if (sample.rows == nullptr || sample_.rows == nullptr) return sample.rows == sample_.rows;
  return sample.n_rows == sample_.n_rows &&
         std::equal(sample.rows, sample.rows + sample.n_rows, sample_.rows);
}

std::vector<RowRange> HostRowPartitioner::repartition(const RowSample& sample, int32_t n_leaves) {
  set_sample(sample);
  is_sample_ = true;
  ids_[0].reserve(sample.n_used());
  const std::vector<int64_t> begin =
      group_rows_by_leaf(sample_, leaf_of_row_.data(), n_leaves, ids_[0].data());
  std::vector<RowRange> ranges(n_leaves);
  for (int32_t leaf = 0; leaf < n_leaves; ++leaf) ranges[leaf] = {begin[leaf], begin[leaf + 1], 0};
  std::vector<RowRange*> all;
  for (RowRange& range : ranges) all.push_back(&range);
  fetch_words(all);
  sparse_partition_.group(ids_[0].data(), bins_.n_rows(), ranges);
  return ranges;
}

void HostRowPartitioner::codes(const RowRange& rows, int feature, uint8_t* out) const {
  if (bins_.is_sparse(feature)) {
    const int64_t number = bins_.sparse_index(feature);
    std::memset(out, bins_.sparse_columns().common(number), static_cast<size_t>(rows.size()));
    const EntryRange entries = sparse_partition_.range(rows.entry_list, number, number + 1);
    for (const SparseEntry* e = entries.begin; e != entries.end; ++e)
      if (entries.place(*e) != EntryRange::kRemoved)
        out[entries.place(*e)] = static_cast<uint8_t>(e->code());
    return;
  }
  const int t = bins_.tile_index(feature), shift = 8 * bins_.slot_index(feature);
  const int missing = bins_.tile(t).missing();
  uint64_t buffer[kGatherWords + 8];
  for (int64_t first = 0; first < rows.size(); first += kGatherWords) {
    const int64_t n = std::min(kGatherWords, rows.size() - first);
    const uint64_t* from = words(rows, t, first, n, buffer);
    for (int64_t i = 0; i < n; ++i) {
      const int code = static_cast<int>(from[i] >> shift) & 255;
      out[first + i] = static_cast<uint8_t>(code == missing ? kMissingCode : code);
    }
  }
}

Route HostRowPartitioner::make_route(const PartitionRequest& request, CategorySet& set) const {
  const Tile& tile = bins_.tile(bins_.tile_index(request.feature));
  Route route;
  route.slot = bins_.slot_index(request.feature);
  route.mask = tile.stride() - 1;
  route.offset = request.missing_left ? 1 : 0;
  route.threshold = request.threshold + route.offset;
  if (request.threshold >= 0) return route;
  // The tile stores the missing code as its last bin.
  set = request.set;
  const int missing = tile.missing();
  if (missing != kMissingCode) set[missing >> 6] &= ~(uint64_t{1} << (missing & 63));
  if (request.missing_left) set[missing >> 6] |= uint64_t{1} << (missing & 63);
  route.set = set.data();
  return route;
}

int64_t HostRowPartitioner::decide(const PartitionRequest& request, int64_t first, int64_t last,
                                   uint8_t* bits) const {
  if (bins_.is_sparse(request.feature)) return decide_sparse(request, first, last, bits);
  CategorySet set;
  const Route route = make_route(request, set);
  const int t = bins_.tile_index(request.feature);
  uint64_t buffer[kGatherWords + 8];
  int64_t n_left = 0;
  const int64_t block_size = std::max<int64_t>(1, word_block_size(request.rows, last - first));
  for (int64_t begin = first; begin < last; begin += block_size) {
    const int64_t n = std::min(block_size, last - begin);
    const uint64_t* from = words(request.rows, t, begin, n, buffer);
    n_left += POLYLEAF_SELECT(partition_kernels).decide(from, n, route, bits + (begin - first) / 8);
  }
  return n_left;
}

// Send all rows where the most common code goes, except those with an explicit entry.
int64_t HostRowPartitioner::decide_sparse(const PartitionRequest& request, int64_t first,
                                          int64_t last, uint8_t* bits) const {
  const int64_t number = bins_.sparse_index(request.feature), n = last - first;
  const bool common_left = bins_.sparse_columns().common(number) <= request.threshold;
  std::memset(bits, common_left ? 255 : 0, static_cast<size_t>((n + 7) / 8));
  if (common_left && n % 8 != 0) bits[n / 8] = static_cast<uint8_t>((1 << (n % 8)) - 1);
  int64_t n_left = common_left ? n : 0;
  const EntryRange entries = sparse_partition_.range(request.rows.entry_list, number, number + 1);
  for (const SparseEntry* e = entries.begin; e != entries.end; ++e) {
    const int code = e->code();
    const bool left = code == kMissingCode ? request.missing_left : code <= request.threshold;
    const uint32_t place = entries.place(*e);
    const int64_t i = int64_t{place} - first;
    if (left == common_left || place == EntryRange::kRemoved || i < 0 || i >= n) continue;
    bits[i / 8] ^= static_cast<uint8_t>(1 << (i % 8));
    n_left += left ? 1 : -1;
  }
  return n_left;
}

void HostRowPartitioner::partition_rows(std::vector<PartitionRequest>& requests) {
  const PartitionKernels& move = POLYLEAF_SELECT(partition_kernels);
  std::vector<Piece> pieces = make_pieces(requests);
  const Context context = context_.limit_operations(count_rows(requests));
  bits_.reserve(static_cast<size_t>(first_bytes(requests).back()) + 64);
  parallel_for(context, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    Piece& p = pieces[task];
    const PartitionRequest& d = requests[p.request];
    p.n_left = decide(d, p.begin - d.rows.begin, p.end - d.rows.begin, bits_.data() + p.bits);
  });

  place_rows(pieces, requests);
  for (int copy : {1, 2}) ids_[copy].reserve(sample_.n_used());
  const bool in_place = moves_in_place(requests);
  for (PartitionRequest& d : requests) {
    const int words = in_place || d.rows.words == 0 ? d.rows.words : 3 - d.rows.words;
    d.left.words = d.right.words = d.left_is_splittable || d.right_is_splittable ? words : 0;
    if (!in_place && words != 0)
      for (int t : tiles_) words_[words - 1][t].reserve(sample_.n_used());
  }
  parallel_for(context, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    const Piece& piece = pieces[task];
    const PartitionRequest& d = requests[piece.request];
    const int to = d.left.copy;
    const int64_t n = piece.end - piece.begin;
    const uint8_t* bits = bits_.data() + piece.bits;
    if (d.rows.copy == 0 && !is_sample_)
      move.move_id_range(static_cast<uint32_t>(piece.begin), bits, n,
                         ids_[to].data() + piece.left_to, piece.n_left,
                         ids_[to].data() + piece.right_to);
    else
      move.move_ids(ids_[d.rows.copy].data() + piece.begin, bits, n,
                    ids_[to].data() + piece.left_to, piece.n_left,
                    ids_[to].data() + piece.right_to);
    if (in_place || d.left.words == 0) return;
    for (int t : tiles_)
      move.move_words(words_at(d.rows.words, t, piece.begin), bits, n,
                      words_at(d.left.words, t, piece.left_to), piece.n_left,
                      words_at(d.left.words, t, piece.right_to));
  });
  if (in_place) move_in_place(requests);
  std::vector<RowRange*> children;
  for (PartitionRequest& d : requests) {
    if (d.left_is_splittable) children.push_back(&d.left);
    if (d.right_is_splittable) children.push_back(&d.right);
  }
  fetch_words(children);
  if (bins_.sparse_columns().n_entries() > 0) partition_entries(requests);
}

// Move sparse entries to the children of their rows.
void HostRowPartitioner::partition_entries(std::vector<PartitionRequest>& requests) {
  std::vector<const uint8_t*> bits;
  for (const int64_t at : first_bytes(requests)) bits.push_back(bits_.data() + at);
  bits.pop_back();
  const uint32_t* ids[3];
  for (int copy = 0; copy < 3; ++copy) ids[copy] = ids_[copy].data();
  sparse_partition_.partition_rows(requests, bits, ids);
}

// With enough tiles for all threads words are moved in place, which saves a second copy.
bool HostRowPartitioner::moves_in_place(const std::vector<PartitionRequest>& requests) const {
  return context_.n_threads == 1 ||
         requests.size() * tiles_.size() >= 2 * size_t(context_.n_threads);
}

// Compact rows that go left in place; stage rows that go right in a buffer of the thread.
void HostRowPartitioner::move_in_place(const std::vector<PartitionRequest>& requests) {
  const PartitionKernels& move = POLYLEAF_SELECT(partition_kernels);
  const std::vector<int64_t> bytes = first_bytes(requests);
  const auto n_requests = static_cast<int64_t>(requests.size());
  const auto n_tiles = static_cast<int64_t>(tiles_.size());
  const Context context = context_.limit_operations(n_tiles * count_rows(requests));
  parallel_for(context, n_requests * n_tiles, [&](int64_t task, int thread) {
    const int64_t i = task % n_requests;
    const PartitionRequest& d = requests[i];
    if (d.left.words == 0) return;
    uint64_t* words = words_at(d.left.words, tiles_[task / n_requests], d.rows.begin);
    const int64_t n_left = d.left.size(), n_right = d.right.size();
    right_words_[thread].reserve(static_cast<size_t>(n_right));
    uint64_t* right = right_words_[thread].data();
    move.move_words(words, bits_.data() + bytes[i], d.rows.size(), words, n_left, right);
    std::memcpy(words + n_left, right, sizeof(uint64_t) * static_cast<size_t>(n_right));
  });
}

// A task writes the rows of one block, of all leaves: no cache line goes back and forth between
// threads. The rows of a leaf ascend.
void HostRowPartitioner::assign_leaf_ids(const std::vector<LeafRows>& leaves, const Tree& tree) {
  const int64_t n = bins_.n_rows();
  const int64_t size = std::max<int64_t>(kLeafIdBlock, n / (4 * int64_t{context_.n_threads}) + 1);
  const Context context = context_.limit_operations(sample_.n_used());
  parallel_for(context, Block::count(n, size), [&](int64_t task, int) {
    const Block block(n, size, task);
    int32_t* out = leaf_of_row_.data();
    for (const auto& [leaf, rows] : leaves) {
      const uint32_t* from = ids(rows);
      if (from == nullptr) {
        std::fill(out + std::max(block.begin, rows.begin),
                  out + std::max(block.begin, std::min(block.end, rows.end)), leaf);
        continue;
      }
      const uint32_t* end = from + rows.size();
      for (from = std::lower_bound(from, end, block.begin); from < end && *from < block.end; ++from)
        out[*from] = leaf;
    }
  });
  if (sample_.rows != nullptr) route_outside_rows(tree);
}

void HostRowPartitioner::route_outside_rows(const Tree& tree) {
  parallel_for(context_, Block::count(bins_.n_rows(), kLeafIdBlock), [&](int64_t task, int) {
    const Block rows(bins_.n_rows(), kLeafIdBlock, task);
    const uint32_t* next =
        std::lower_bound(sample_.rows, sample_.rows + sample_.n_rows, rows.begin);
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      if (next < sample_.rows + sample_.n_rows && *next == i) {
        ++next;
        continue;
      }
      int32_t node = 0;
      while (tree.left[node] >= 0)
        node = tree.goes_left(node, bins_.code(tree.feature[node], i)) ? tree.left[node]
                                                                       : tree.right[node];
      leaf_of_row_[i] = tree.leaf[node];
    }
  });
}

}  // namespace polyleaf
