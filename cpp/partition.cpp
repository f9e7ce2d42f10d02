#include "partition.h"

#include <algorithm>

#include "parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kMoveBlock = 8192;  // rows one task moves

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

}  // namespace

Partition::Partition(const Bins& bins, int n_threads) : bins_(bins), n_threads_(std::max(1, n_threads)) {
  for (auto& words : words_) words.resize(bins.n_tiles());
}

RowRange Partition::start(const RowSample& sample, const std::vector<int>& tiles) {
  tiles_ = tiles;
  take(sample);
  is_sample_ = sample.rows != nullptr;
  if (is_sample_) {
    ids_[0].reserve(rows_.size());
    std::copy(rows_.begin(), rows_.end(), ids_[0].data());
    gather_root();
  }
  return {0, sample.n_used(), 0};
}

// A copy of the sample: the caller's may be gone before the tree is finished.
void Partition::take(const RowSample& sample) {
  sample_ = sample;
  if (sample.rows == nullptr) return;
  rows_.assign(sample.rows, sample.rows + sample.n_rows);
  sample_.rows = rows_.data();
}

// Words of the ids of copy 0.
void Partition::gather_root() {
  const PartitionKernels& move = POLYLEAF_SELECT(partition_kernels);
  const int64_t n = sample_.n_used(), n_blocks = Block::count(n, kMoveBlock);
  for (int t : tiles_) words_[0][t].reserve(n);
  parallel_for(n_threads_, n_blocks * static_cast<int64_t>(tiles_.size()), [&](int64_t task, int) {
    const int t = tiles_[task / n_blocks];
    const Block rows(n, kMoveBlock, task % n_blocks);
    move.gather_words(bins_.words(t), ids_[0].data() + rows.begin, rows.end - rows.begin,
                      words_[0][t].data() + rows.begin);
  });
}

bool Partition::has(const RowSample& sample) const {
  if (sample.rows == nullptr || sample_.rows == nullptr) return sample.rows == sample_.rows;
  return sample.n_rows == sample_.n_rows &&
         std::equal(sample.rows, sample.rows + sample.n_rows, sample_.rows);
}

std::vector<RowRange> Partition::regroup(const RowSample& sample, const int32_t* leaf_of_row,
                                         int32_t n_leaves) {
  take(sample);
  is_sample_ = true;
  const int64_t n = sample.n_used();
  const auto row = [&](int64_t i) {
    return sample_.rows != nullptr ? sample_.rows[i] : static_cast<uint32_t>(i);
  };
  std::vector<int64_t> next(static_cast<size_t>(n_leaves) + 1, 0);
  for (int64_t i = 0; i < n; ++i) ++next[leaf_of_row[row(i)] + 1];
  std::vector<RowRange> ranges(n_leaves);
  for (int32_t leaf = 0; leaf < n_leaves; ++leaf) {
    next[leaf + 1] += next[leaf];
    ranges[leaf] = {next[leaf], next[leaf + 1], 0};
  }
  ids_[0].reserve(n);
  for (int64_t i = 0; i < n; ++i) ids_[0].data()[next[leaf_of_row[row(i)]]++] = row(i);
  gather_root();
  return ranges;
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
  CategorySet set;
  const Route route = route_of(division, set);
  const uint64_t* from = words(division.rows, bins_.tile_of(division.feature));
  return POLYLEAF_SELECT(partition_kernels).decide(from + first, last - first, route, bits);
}

void Partition::divide(std::vector<Division>& divisions) {
  const PartitionKernels& move = POLYLEAF_SELECT(partition_kernels);
  std::vector<Piece> pieces = pieces_of(divisions);
  bits_.reserve(pieces.size() * static_cast<size_t>(kMoveBlock / 8) + 64);
  parallel_for(n_threads_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    Piece& p = pieces[task];
    const Division& d = divisions[p.division];
    p.n_left = decide(d, p.begin - d.rows.begin, p.end - d.rows.begin, bits_.data() + p.bits);
  });

  // Where each piece's rows go: after those of the pieces before it.
  size_t p = 0;
  for (size_t i = 0; i < divisions.size(); ++i) {
    Division& d = divisions[i];
    const int to = d.rows.copy == 1 ? 2 : 1;
    const int64_t middle = d.rows.begin + d.n_left;
    d.left = {d.rows.begin, middle, to};
    d.right = {middle, d.rows.end, to};
    int64_t to_left = d.left.begin, to_right = d.right.begin;
    for (; p < pieces.size() && pieces[p].division == i; ++p) {
      pieces[p].left_to = to_left;
      pieces[p].right_to = to_right;
      to_left += pieces[p].n_left;
      to_right += pieces[p].end - pieces[p].begin - pieces[p].n_left;
    }
  }
  for (int copy : {1, 2}) {
    ids_[copy].reserve(sample_.n_used());
    for (int t : tiles_) words_[copy][t].reserve(sample_.n_used());
  }
  parallel_for(n_threads_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
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
    if (!d.with_words) return;
    for (int t : tiles_)
      move.move_words(copy(d.rows.copy, t) + piece.begin, bits, n, words_[to][t].data() + piece.left_to,
                      piece.n_left, words_[to][t].data() + piece.right_to);
  });
}

}  // namespace polyleaf
