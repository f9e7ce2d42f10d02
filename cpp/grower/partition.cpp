#include "grower/partition.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kMoveBlock = 2048;    // rows one task moves
constexpr int64_t kEntryBlock = 32768;  // cells of sparse features one task moves
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

Partition::Partition(const Bins& bins, const Workers& workers) : bins_(bins), workers_(workers) {
  for (auto& words : words_) words.resize(bins.n_tiles());
  leaf_of_row_.reserve(bins.n_rows());
}

RowRange Partition::start(const RowSample& sample, const std::vector<int>& tiles) {
  tiles_ = tiles;
  take(sample);
  is_sample_ = sample.rows != nullptr;
  n_entries_ = bins_.cells().n_entries();
  std::vector<RowRange> root = {{0, sample.n_used(), 0, 0, n_entries_}};
  if (is_sample_) {
    ids_[0].reserve(rows_.size());
    std::copy(rows_.begin(), rows_.end(), ids_[0].data());
    gather_root();
    group_entries(root);
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
  group_entries(ranges);
  return ranges;
}

// Cells of the rows of copy 0, group after group; those of other rows are left out.
void Partition::group_entries(std::vector<RowRange>& groups) {
  const Cells& sparse = bins_.cells();
  n_entries_ = 0;
  if (sparse.n_entries() == 0) return;
  constexpr uint32_t kNoGroup = UINT32_MAX;
  std::vector<uint32_t> group_of(bins_.n_rows(), kNoGroup), place_of(bins_.n_rows());
  for (size_t g = 0; g < groups.size(); ++g)
    for (int64_t i = groups[g].begin; i < groups[g].end; ++i) {
      const uint32_t id = ids_[0].data()[i];
      group_of[id] = static_cast<uint32_t>(g);
      place_of[id] = static_cast<uint32_t>(i - groups[g].begin);
    }
  // Blocks are counted, then written behind those before them: the order does not depend on the blocks.
  const int64_t n_blocks = Block::count(sparse.n_entries(), kEntryBlock);
  std::vector<int64_t> next(static_cast<size_t>(n_blocks) * groups.size(), 0);
  const auto each = [&](int64_t block, auto&& use) {
    const Block range(sparse.n_entries(), kEntryBlock, block);
    for (int64_t e = range.begin; e < range.end; ++e) {
      const Cell& entry = sparse.entries()[e];
      if (group_of[entry.row] != kNoGroup) use(entry, next[block * groups.size() + group_of[entry.row]]);
    }
  };
  parallel_for(workers_, n_blocks,
               [&](int64_t block, int) { each(block, [](const Cell&, int64_t& n) { ++n; }); });
  for (size_t g = 0; g < groups.size(); ++g) {
    groups[g].first_entry = n_entries_;
    for (int64_t block = 0; block < n_blocks; ++block) {
      int64_t& at = next[block * groups.size() + g];
      const int64_t n = at;
      at = n_entries_;
      n_entries_ += n;
    }
    groups[g].last_entry = n_entries_;
  }
  entries_[0].reserve(n_entries_);
  parallel_for(workers_, n_blocks, [&](int64_t block, int) {
    each(block,
         [&](const Cell& entry, int64_t& at) { entries_[0][at++] = {place_of[entry.row], entry.key}; });
  });
}

CellRange Partition::cell_range(const RowRange& rows) const {
  const Cell* all = rows.copy == 0 && !is_sample_ ? bins_.cells().entries() : entries_[rows.copy].data();
  return {all + rows.first_entry, all + rows.last_entry};
}

CellRange Partition::entries(const RowRange& rows, int64_t first, int64_t last) const {
  const CellRange all = cell_range(rows);
  const auto before = [](const Cell& entry, int64_t number) { return entry.number() < number; };
  const Cell* begin = std::lower_bound(all.begin, all.end, first, before);
  return {begin, std::lower_bound(begin, all.end, last, before)};
}

void Partition::codes(const RowRange& rows, int feature, uint8_t* out) const {
  if (bins_.in_cells(feature)) {
    const int64_t number = bins_.cell_number(feature);
    std::memset(out, bins_.cells().common(number), static_cast<size_t>(rows.size()));
    const CellRange named = entries(rows, number, number + 1);
    for (const Cell* e = named.begin; e != named.end; ++e) out[e->row] = static_cast<uint8_t>(e->code());
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
  const CellRange named = entries(division.rows, number, number + 1);
  for (const Cell* e = named.begin; e != named.end; ++e) {
    const int code = e->code();
    const bool left = code == kMissingCode ? division.missing_left : code <= division.threshold;
    const int64_t i = static_cast<int64_t>(e->row) - first;
    if (left == common_left || i < 0 || i >= n) continue;
    bits[i / 8] ^= static_cast<uint8_t>(1 << (i % 8));
    n_left += left ? 1 : -1;
  }
  return n_left;
}

// Moves the cells of sparse features behind their rows, whose sides have been decided.
void Partition::divide_entries(std::vector<Division>& divisions) {
  const PartitionKernels& move = POLYLEAF_SELECT(partition_kernels);
  std::vector<EntryPiece> pieces = entry_pieces_of(divisions);
  parallel_for(workers_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    EntryPiece& p = pieces[task];
    for (const Cell* e = p.entries.begin; e != p.entries.end; ++e)
      p.n_left += p.bits[e->row / 8] >> (e->row % 8) & 1;
  });
  place_entries(pieces, divisions);
  for (int copy : {1, 2}) entries_[copy].reserve(n_entries_);
  parallel_for(workers_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    const EntryPiece& p = pieces[task];
    Cell* to = entries_[divisions[p.division].left.copy].data();
    move.move_entries(p.entries.begin, p.entries.size(), p.bits, p.ranks, to + p.left_to, to + p.right_to);
  });
}

// Blocks of the divisions' cells, and for each division how many rows go left before each 64 of them.
std::vector<Partition::EntryPiece> Partition::entry_pieces_of(const std::vector<Division>& divisions) {
  const PartitionKernels& move = POLYLEAF_SELECT(partition_kernels);
  std::vector<EntryPiece> pieces;
  int64_t bytes = 0, n_ranks = 0;
  for (const Division& d : divisions) n_ranks += d.rows.size() / 64 + 1;
  ranks_.reserve(n_ranks);
  n_ranks = 0;
  for (size_t i = 0; i < divisions.size(); ++i) {
    const Division& d = divisions[i];
    const uint8_t* bits = bits_.data() + bytes;
    uint32_t* ranks = ranks_.data() + n_ranks;
    bytes += Block::count(d.rows.size(), kMoveBlock) * (kMoveBlock / 8);
    n_ranks += d.rows.size() / 64 + 1;
    if (!d.with_words) continue;
    move.rank(bits, d.rows.size(), ranks);
    const CellRange all = cell_range(d.rows);
    for (const Cell* e = all.begin; e != all.end; e += std::min(kEntryBlock, all.end - e))
      pieces.push_back({i, bits, ranks, {e, e + std::min(kEntryBlock, all.end - e)}});
  }
  return pieces;
}

// The same for cells.
void Partition::place_entries(std::vector<EntryPiece>& pieces, std::vector<Division>& divisions) {
  for (Division& d : divisions) d.left.first_entry = d.left.last_entry = d.rows.first_entry;
  for (EntryPiece& p : pieces) {
    p.left_to = divisions[p.division].left.last_entry;
    divisions[p.division].left.last_entry += p.n_left;
  }
  for (Division& d : divisions) d.right.first_entry = d.right.last_entry = d.left.last_entry;
  for (EntryPiece& p : pieces) {
    p.right_to = divisions[p.division].right.last_entry;
    divisions[p.division].right.last_entry += p.entries.size() - p.n_left;
  }
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
    if (!d.with_words || !copies_words()) return;
    for (int t : tiles_)
      move.move_words(copy(d.rows.copy, t) + piece.begin, bits, n, words_[to][t].data() + piece.left_to,
                      piece.n_left, words_[to][t].data() + piece.right_to);
  });
  if (bins_.cells().n_entries() > 0) divide_entries(divisions);
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
