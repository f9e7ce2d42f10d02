#include "grower/host_row_partitioner.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kMoveBlock = 2048;    // rows moved by one task
constexpr int64_t kLeafIdBlock = 8192;  // rows whose leaf ids one task writes

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
    : bins_(bins), context_(context), sparse_partition_(bins.sparse_columns(), context) {
  leaf_of_row_.reserve(bins.n_rows());
}

RowRange HostRowPartitioner::start(const RowSample& sample) {
  set_sample(sample);
  is_sample_ = sample.rows != nullptr;
  std::vector<RowRange> root = {{0, sample.n_used()}};
  if (is_sample_) {
    ids_[0].reserve(rows_.size());
    std::copy(rows_.begin(), rows_.end(), ids_[0].data());
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

HostRowPartitioner::Words HostRowPartitioner::locate_words(const RowRange& rows, int tile,
                                                           int64_t first) const {
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
  });
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
