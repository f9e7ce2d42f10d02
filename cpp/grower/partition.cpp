#include "grower/partition.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kMoveBlock = 2048;    // rows one task moves
constexpr int64_t kNumberBlock = 8192;  // rows whose leaves one task writes

// A block of one division's rows, and where it goes.
struct Piece {
  size_t division;
  int64_t begin, end;  // in the copy of the node
  size_t bits;
  int64_t n_left = 0, left_to = 0, right_to = 0;
};

std::vector<Piece> pieces_of(const std::vector<Partition::Division>& divisions) {
  std::vector<Piece> pieces;
  size_t bits = 0;
  for (size_t i = 0; i < divisions.size(); ++i) {
    const RowRange& rows = divisions[i].rows;
    for (int64_t b = rows.begin; b < rows.end; b += kMoveBlock) {
      pieces.push_back({i, b, std::min(b + kMoveBlock, rows.end), bits});
      bits += static_cast<size_t>(kMoveBlock / 8);
    }
  }
  return pieces;
}

// Where each piece's rows go: after those of the pieces before it; the right child's after the left one's.
void place_rows(std::vector<Piece>& pieces, std::vector<Partition::Division>& divisions) {
  for (Partition::Division& d : divisions) d.left = {d.rows.begin, d.rows.begin, d.rows.copy == 1 ? 2 : 1};
  for (Piece& p : pieces) {
    p.left_to = divisions[p.division].left.end;
    divisions[p.division].left.end += p.n_left;
  }
  for (Partition::Division& d : divisions) d.right = {d.left.end, d.left.end, d.left.copy};
  for (Piece& p : pieces) {
    p.right_to = divisions[p.division].right.end;
    divisions[p.division].right.end += p.end - p.begin - p.n_left;
  }
}

}  // namespace

Partition::Partition(const Bins& bins, const Workers& workers)
    : bins_(bins), workers_(workers), cell_lists_(bins.cells(), workers) {
  for (auto& words : words_) words.resize(bins.n_tiles());
  leaf_of_row_.reserve(bins.n_rows());
}

RowRange Partition::start(const RowSample& sample, const std::vector<int>& tiles) {
  tiles_ = tiles;
  take(sample);
  is_sample_ = sample.rows != nullptr;
  std::vector<RowRange> root = {{0, sample.n_used()}};
  if (is_sample_) {
    ids_[0].reserve(rows_.size());
    std::copy(rows_.begin(), rows_.end(), ids_[0].data());
    gather_root();
    cell_lists_.group(ids_[0].data(), bins_.n_rows(), root);
  } else {
    root[0].cells = cell_lists_.start();
  }
  return root[0];
}

// A copy of the sample: the caller's may be gone before the tree is finished.
void Partition::take(const RowSample& sample) {
  sample_ = sample;
  if (sample.rows == nullptr) return;
  rows_.assign(sample.rows, sample.rows + sample.n_rows);
  sample_.rows = begin_of(rows_.data(), rows_.size());
}

// Words of the ids of copy 0.
void Partition::gather_root() {
  if (!copies_words()) return;
  const PartitionKernels& move = POLYLEAF_SELECT(partition_kernels);
  const int64_t n = sample_.n_used(), n_blocks = Block::count(n, kMoveBlock);
  for (int t : tiles_) words_[0][t].reserve(n);
  parallel_for(workers_, n_blocks * static_cast<int64_t>(tiles_.size()), [&](int64_t task, int) {
    const int t = tiles_[task / n_blocks];
    const Block rows(n, kMoveBlock, task % n_blocks);
    move.gather_words(bins_.words(t), ids_[0].data() + rows.begin, rows.end - rows.begin,
                      words_[0][t].data() + rows.begin);
  });
}

Partition::Words Partition::words_from(const RowRange& rows, int tile, int64_t first) const {
  if (copies_words()) return {copy(rows.copy, tile) + rows.begin + first, nullptr};
  const uint32_t* from = ids(rows);
  if (from == nullptr) return {bins_.words(tile) + rows.begin + first, nullptr};
  return {bins_.words(tile), from + first};
}

const uint64_t* Partition::words(const RowRange& rows, int tile, int64_t first, int64_t n,
                                 uint64_t* room) const {
  const Words from = words_from(rows, tile, first);
  if (from.ids == nullptr) return from.words;
  POLYLEAF_SELECT(partition_kernels).gather_words(from.words, from.ids, n, room);
  return room;
}

bool Partition::has(const RowSample& sample) const {
  if (sample.rows == nullptr || sample_.rows == nullptr) return sample.rows == sample_.rows;
  return sample.n_rows == sample_.n_rows &&
         std::equal(sample.rows, sample.rows + sample.n_rows, sample_.rows);
}

std::vector<RowRange> Partition::regroup(const RowSample& sample, int32_t n_leaves) {
  take(sample);
  is_sample_ = true;
  ids_[0].reserve(sample.n_used());
  const std::vector<int64_t> begin = rows_by_leaf(sample_, leaf_of_row_.data(), n_leaves, ids_[0].data());
  std::vector<RowRange> ranges(n_leaves);
  for (int32_t leaf = 0; leaf < n_leaves; ++leaf) ranges[leaf] = {begin[leaf], begin[leaf + 1], 0};
  gather_root();
  cell_lists_.group(ids_[0].data(), bins_.n_rows(), ranges);
  return ranges;
}

void Partition::codes(const RowRange& rows, int feature, uint8_t* out) const {
  if (bins_.in_cells(feature)) {
    const int64_t number = bins_.cell_number(feature);
    std::memset(out, bins_.cells().common(number), static_cast<size_t>(rows.size()));
    const CellRange named = cell_lists_.range(rows.cells, number, number + 1);
    for (const Cell* e = named.begin; e != named.end; ++e)
      if (named.place(*e) != CellRange::kGone) out[named.place(*e)] = static_cast<uint8_t>(e->code());
    return;
  }
  const int t = bins_.tile_of(feature), shift = 8 * bins_.slot_of(feature);
  const int missing = bins_.tile(t).missing();
  uint64_t room[kFetched + 8];
  for (int64_t first = 0; first < rows.size(); first += kFetched) {
    const int64_t n = std::min(kFetched, rows.size() - first);
    const uint64_t* from = words(rows, t, first, n, room);
    for (int64_t i = 0; i < n; ++i) {
      const int code = static_cast<int>(from[i] >> shift) & 255;
      out[first + i] = static_cast<uint8_t>(code == missing ? kMissingCode : code);
    }
  }
}

Route Partition::route_of(const Division& division, CategorySet& set) const {
  const Tile& tile = bins_.tile(bins_.tile_of(division.feature));
  Route route;
  route.slot = bins_.slot_of(division.feature);
  route.mask = tile.stride() - 1;
  route.offset = division.missing_left ? 1 : 0;
  route.threshold = division.threshold + route.offset;
  if (division.threshold >= 0) return route;
  // The tile stores the missing code as its last bin.
  set = division.set;
  const int missing = tile.missing();
  if (missing != kMissingCode) set[missing >> 6] &= ~(uint64_t{1} << (missing & 63));
  if (division.missing_left) set[missing >> 6] |= uint64_t{1} << (missing & 63);
  route.set = set.data();
  return route;
}

int64_t Partition::decide(const Division& division, int64_t first, int64_t last, uint8_t* bits) const {
  if (bins_.in_cells(division.feature)) return decide_cells(division, first, last, bits);
  CategorySet set;
  const Route route = route_of(division, set);
  const int t = bins_.tile_of(division.feature);
  uint64_t room[kFetched + 8];
  int64_t n_left = 0;
  const int64_t at_once = std::max<int64_t>(1, words_at_once(last - first));
  for (int64_t begin = first; begin < last; begin += at_once) {
    const int64_t n = std::min(at_once, last - begin);
    const uint64_t* from = words(division.rows, t, begin, n, room);
    n_left += POLYLEAF_SELECT(partition_kernels).decide(from, n, route, bits + (begin - first) / 8);
  }
  return n_left;
}

// All rows go where the common code does, but for those that an entry names.
int64_t Partition::decide_cells(const Division& division, int64_t first, int64_t last, uint8_t* bits) const {
  const int64_t number = bins_.cell_number(division.feature), n = last - first;
  const bool common_left = bins_.cells().common(number) <= division.threshold;
  std::memset(bits, common_left ? 255 : 0, static_cast<size_t>((n + 7) / 8));
  if (common_left && n % 8 != 0) bits[n / 8] = static_cast<uint8_t>((1 << (n % 8)) - 1);
  int64_t n_left = common_left ? n : 0;
  const CellRange named = cell_lists_.range(division.rows.cells, number, number + 1);
  for (const Cell* e = named.begin; e != named.end; ++e) {
    const int code = e->code();
    const bool left = code == kMissingCode ? division.missing_left : code <= division.threshold;
    const uint32_t place = named.place(*e);
    const int64_t i = int64_t{place} - first;
    if (left == common_left || place == CellRange::kGone || i < 0 || i >= n) continue;
    bits[i / 8] ^= static_cast<uint8_t>(1 << (i % 8));
    n_left += left ? 1 : -1;
  }
  return n_left;
}

void Partition::divide(std::vector<Division>& divisions) {
  const PartitionKernels& move = POLYLEAF_SELECT(partition_kernels);
  std::vector<Piece> pieces = pieces_of(divisions);
  bits_.reserve(pieces.size() * static_cast<size_t>(kMoveBlock / 8) + 64);
  parallel_for(workers_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    Piece& p = pieces[task];
    const Division& d = divisions[p.division];
    p.n_left = decide(d, p.begin - d.rows.begin, p.end - d.rows.begin, bits_.data() + p.bits);
  });

  place_rows(pieces, divisions);
  for (int copy : {1, 2}) {
    ids_[copy].reserve(sample_.n_used());
    if (!copies_words()) continue;
    for (int t : tiles_) words_[copy][t].reserve(sample_.n_used());
  }
  parallel_for(workers_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    const Piece& piece = pieces[task];
    const Division& d = divisions[piece.division];
    const int to = d.left.copy;
    const int64_t n = piece.end - piece.begin;
    const uint8_t* bits = bits_.data() + piece.bits;
    if (d.rows.copy == 0 && !is_sample_)
      move.number_ids(static_cast<uint32_t>(piece.begin), bits, n, ids_[to].data() + piece.left_to,
                      piece.n_left, ids_[to].data() + piece.right_to);
    else
      move.move_ids(ids_[d.rows.copy].data() + piece.begin, bits, n, ids_[to].data() + piece.left_to,
                    piece.n_left, ids_[to].data() + piece.right_to);
    if (!(d.left_goes_on || d.right_goes_on) || !copies_words()) return;
    for (int t : tiles_)
      move.move_words(copy(d.rows.copy, t) + piece.begin, bits, n, words_[to][t].data() + piece.left_to,
                      piece.n_left, words_[to][t].data() + piece.right_to);
  });
  if (bins_.cells().n_entries() > 0) divide_cells(divisions);
}

// Cells go where their rows went.
void Partition::divide_cells(std::vector<Division>& divisions) {
  std::vector<const uint8_t*> bits;
  int64_t at = 0;
  for (const Division& d : divisions) {
    bits.push_back(bits_.data() + at);
    at += Block::count(d.rows.size(), kMoveBlock) * (kMoveBlock / 8);
  }
  const uint32_t* ids[3];
  for (int copy = 0; copy < 3; ++copy) ids[copy] = ids_[copy].data();
  cell_lists_.divide(divisions, bits, ids);
}

void Partition::number(const std::vector<LeafRows>& leaves, const Tree& tree) {
  std::vector<LeafRows> pieces;
  for (const auto& [leaf, rows] : leaves)
    for (int64_t b = rows.begin; b < rows.end; b += kNumberBlock)
      pieces.push_back({leaf, {b, std::min(b + kNumberBlock, rows.end), rows.copy}});
  parallel_for(workers_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    const LeafRows& piece = pieces[task];
    int32_t* out = leaf_of_row_.data();
    const uint32_t* from = ids(piece.rows);
    if (from == nullptr) {
      std::fill(out + piece.rows.begin, out + piece.rows.end, piece.leaf);
      return;
    }
    for (int64_t i = 0; i < piece.rows.size(); ++i) out[from[i]] = piece.leaf;
  });
  if (sample_.rows != nullptr) route_outside_rows(tree);
}

void Partition::route_outside_rows(const Tree& tree) {
  parallel_for(workers_, Block::count(bins_.n_rows(), kNumberBlock), [&](int64_t task, int) {
    const Block rows(bins_.n_rows(), kNumberBlock, task);
    const uint32_t* next = std::lower_bound(sample_.rows, sample_.rows + sample_.n_rows, rows.begin);
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      if (next < sample_.rows + sample_.n_rows && *next == i) {
        ++next;
        continue;
      }
      int32_t node = 0;
      while (tree.left[node] >= 0)
        node = tree.goes_left(node, bins_.code(tree.feature[node], i)) ? tree.left[node] : tree.right[node];
      leaf_of_row_[i] = tree.leaf[node];
    }
  });
}

}  // namespace polyleaf
