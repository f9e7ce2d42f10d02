#include "grower/sparse_column_partition.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/parallel.h"
#include "grower/host_row_partitioner.h"

namespace polyleaf {
namespace {

constexpr int64_t kEntryBlock = 32768;  // cells that one task moves
// A list is kept where the smaller child has at most one in so many of its rows and cells: sorting
// a cell from its row costs about as much as moving so many.
constexpr int64_t kFew = 8;
constexpr int64_t kIndexed = 4;  // cells a feature from which a list knows where features begin

}  // namespace

struct SparseColumnPartition::Way {
  RowPartitioner::PartitionRequest* division;
  const uint8_t* bits;
  bool keeps = false;             // the larger child keeps the list
  RowRange* smaller = nullptr;    // where it does
  const uint32_t* ids = nullptr;  // of the smaller one's rows
  int64_t n_smaller = 0;          // cells of the smaller one
  const uint32_t* ranks = nullptr;
  int64_t n_left = 0;  // cells
};

// A block of the cells of one division, and where it goes.
struct SparseColumnPartition::Piece {
  size_t way;
  const Cell* begin;
  int64_t n, n_left = 0, left_to = 0, right_to = 0;
};

SparseColumnPartition::SparseColumnPartition(const Cells& cells, const Workers& workers)
    : cells_(cells), workers_(workers), scratch_(static_cast<size_t>(workers.n_threads)) {}

int32_t SparseColumnPartition::start() {
  for (const auto& list : lists_) list->in_use = false;
  if (cells_.n_entries() == 0) return -1;
  const int32_t root = take(0, 0);
  List& list = *lists_[root];
  list.cells = cells_.entries();
  list.n = list.n_left = cells_.n_entries();
  list.n_rows = cells_.n_rows();
  if (list.n >= kIndexed * cells_.n_features()) list.begin = cells_.begin();
  return root;
}

// The unused list whose memory fits best.
int32_t SparseColumnPartition::take(int64_t n_cells, int64_t n_rows) {
  const auto room = [&](size_t i) { return static_cast<int64_t>(lists_[i]->own.size()); };
  size_t best = lists_.size();
  for (size_t i = 0; i < lists_.size(); ++i) {
    if (lists_[i]->in_use) continue;
    const bool fits = room(i) >= n_cells;
    const bool best_fits = best < lists_.size() && room(best) >= n_cells;
    if (best == lists_.size() ||
        (fits ? !best_fits || room(i) < room(best) : !best_fits && room(i) > room(best)))
      best = i;
  }
  if (best == lists_.size()) lists_.push_back(std::make_unique<List>());
  List& list = *lists_[best];
  list.in_use = true;
  if (room(best) < n_cells) trim(n_cells);
  list.own.reserve(static_cast<size_t>(n_cells));
  list.cells = list.own.data();
  list.n = list.n_left = n_cells;
  list.n_rows = n_rows;
  list.has_positions = false;
  list.begin = nullptr;
  return static_cast<int32_t>(best);
}

// Unused memory is given back where all lists together would have more than twice the cells there
// are: those of nodes, and those of their children.
void SparseColumnPartition::trim(int64_t wanted) {
  int64_t held = wanted;
  for (const auto& list : lists_) held += static_cast<int64_t>(list->own.size());
  for (const auto& list : lists_) {
    if (held <= 2 * cells_.n_entries()) return;
    if (list->in_use) continue;
    held -= static_cast<int64_t>(list->own.size());
    list->own = Buffer<Cell>();
  }
}

void SparseColumnPartition::index(List& list) {
  list.begin = nullptr;
  if (list.n < kIndexed * cells_.n_features()) return;
  list.own_begin.assign(static_cast<size_t>(cells_.n_features()) + 1, 0);
  for (const Cell* e = list.cells; e != list.cells + list.n; ++e) ++list.own_begin[e->number() + 1];
  std::partial_sum(list.own_begin.begin(), list.own_begin.end(), list.own_begin.begin());
  list.begin = list.own_begin.data();
}

CellRange SparseColumnPartition::range(int32_t at, int64_t first, int64_t last) const {
  if (at < 0) return {};
  const List& list = *lists_[at];
  const uint32_t* positions = list.has_positions ? list.positions.data() : nullptr;
  if (list.begin != nullptr)
    return {list.cells + list.begin[first], list.cells + list.begin[last], positions};
  const auto before = [](const Cell& entry, int64_t number) { return entry.number() < number; };
  const Cell* end = list.cells + list.n;
  const Cell* begin = std::lower_bound(list.cells, end, first, before);
  return {begin, std::lower_bound(begin, end, last, before), positions};
}

// Cells of rows of no group are left out.
void SparseColumnPartition::group(const uint32_t* ids, int64_t n_rows,
                                  std::vector<RowRange>& groups) {
  for (const auto& list : lists_) list->in_use = false;
  for (RowRange& group : groups) group.cells = -1;
  if (cells_.n_entries() == 0) return;
  constexpr uint32_t kNoGroup = UINT32_MAX;
  std::vector<uint32_t> group_of(n_rows, kNoGroup), place_of(n_rows);
  for (size_t g = 0; g < groups.size(); ++g)
    for (int64_t i = groups[g].begin; i < groups[g].end; ++i) {
      group_of[ids[i]] = static_cast<uint32_t>(g);
      place_of[ids[i]] = static_cast<uint32_t>(i - groups[g].begin);
    }
  // Blocks are counted, then written behind those before them: the order does not depend on the
  // blocks.
  const int64_t n_blocks = Block::count(cells_.n_entries(), kEntryBlock);
  std::vector<int64_t> next(static_cast<size_t>(n_blocks) * groups.size(), 0);
  const auto each = [&](int64_t block, auto&& use) {
    const Block range(cells_.n_entries(), kEntryBlock, block);
    for (int64_t e = range.begin; e < range.end; ++e) {
      const Cell& entry = cells_.entries()[e];
      const uint32_t g = group_of[entry.row];
      if (g != kNoGroup) use(entry, g, next[block * groups.size() + g]);
    }
  };
  parallel_for(workers_, n_blocks, [&](int64_t block, int) {
    each(block, [](const Cell&, uint32_t, int64_t& n) { ++n; });
  });
  std::vector<Cell*> to(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    int64_t n = 0;
    for (int64_t block = 0; block < n_blocks; ++block)
      n += std::exchange(next[block * groups.size() + g], n);
    groups[g].cells = take(n, groups[g].size());
    to[g] = lists_[groups[g].cells]->own.data();
  }
  parallel_for(workers_, n_blocks, [&](int64_t block, int) {
    each(block, [&](const Cell& entry, uint32_t g, int64_t& at) {
      to[g][at++] = {place_of[entry.row], entry.key};
    });
  });
  for (const RowRange& group : groups) index(*lists_[group.cells]);
}

void SparseColumnPartition::divide(std::vector<RowPartitioner::PartitionRequest>& divisions,
                                   const std::vector<const uint8_t*>& bits,
                                   const uint32_t* const* ids) {
  std::vector<Way> few, many;
  for (size_t i = 0; i < divisions.size(); ++i) {
    RowPartitioner::PartitionRequest& d = divisions[i];
    d.left.cells = d.right.cells = -1;
    if (d.rows.cells < 0) continue;
    if (!d.left_is_splittable && !d.right_is_splittable) {
      give_back(d.rows.cells);
      continue;
    }
    const Way way = way_of(d, bits[i], ids);
    (way.keeps ? few : many).push_back(way);
  }
  for (Way& way : few) {
    RowPartitioner::PartitionRequest& d = *way.division;
    (way.smaller == &d.left ? d.right : d.left).cells = d.rows.cells;
    if (way.smaller == &d.left ? d.left_is_splittable : d.right_is_splittable)
      way.smaller->cells = take(way.n_smaller, way.smaller->size());
  }
  parallel_for(workers_, static_cast<int64_t>(few.size()),
               [&](int64_t task, int thread) { part_with(few[task], thread); });
  move(many);
}

SparseColumnPartition::Way SparseColumnPartition::way_of(RowPartitioner::PartitionRequest& d,
                                                         const uint8_t* bits,
                                                         const uint32_t* const* ids) const {
  Way way{&d, bits};
  const List& list = *lists_[d.rows.cells];
  way.smaller = d.left.size() <= d.right.size() ? &d.left : &d.right;
  if (list.begin == nullptr || way.smaller->size() * kFew > d.rows.size()) return way;
  way.ids = ids[way.smaller->copy] + way.smaller->begin;
  for (int64_t i = 0; i < way.smaller->size(); ++i)
    way.n_smaller += static_cast<int64_t>(cells_.of_row(way.ids[i]).size());
  way.keeps = way.n_smaller * kFew <= list.n_left;
  return way;
}

// The smaller child leaves the list.
void SparseColumnPartition::part_with(Way& way, int thread) {
  const RowPartitioner::PartitionRequest& d = *way.division;
  List& list = *lists_[d.rows.cells];
  const uint32_t leaves = way.smaller == &d.left ? 1 : 0;
  list.positions.reserve(static_cast<size_t>(list.n_rows));
  uint32_t* positions = list.positions.data();
  uint32_t next = 0;
  int64_t row = 0;  // of the node
  for (int64_t i = 0; i < list.n_rows; ++i) {
    if (list.has_positions && positions[i] == CellRange::kRemoved) continue;
    const bool stays = (way.bits[row / 8] >> (row % 8) & 1u) != leaves;
    positions[i] = stays ? next : CellRange::kRemoved;
    next += stays;
    ++row;
  }
  list.has_positions = true;
  list.n_left -= way.n_smaller;
  if (way.smaller->cells >= 0) sort_rows(way, thread);
  if (2 * list.n_left < list.n) leave_out_gone(list);
}

void SparseColumnPartition::leave_out_gone(List& list) {
  Buffer<Cell> left(static_cast<size_t>(list.n_left));
  Cell* to = left.data();
  for (const Cell* e = list.cells; e != list.cells + list.n; ++e) {
    const uint32_t place = list.positions[e->row];
    if (place == CellRange::kRemoved) continue;
    *to++ = {place, e->key};
  }
  list.own = std::move(left);
  list.cells = list.own.data();
  list.n = list.n_left;
  list.has_positions = false;
  index(list);
}

// Cells of few rows, from what each row has: sorted by key, a digit of eleven bits at a time.
void SparseColumnPartition::sort_rows(const Way& way, int thread) {
  List& list = *lists_[way.smaller->cells];
  Buffer<Cell>& room = scratch_[thread];
  room.reserve(static_cast<size_t>(list.n));
  Cell* from = room.data();
  Cell* to = list.own.data();
  Cell* at = from;
  for (int64_t i = 0; i < way.smaller->size(); ++i)
    for (const uint32_t key : cells_.of_row(way.ids[i])) *at++ = {static_cast<uint32_t>(i), key};
  constexpr int kBits = 11;
  for (int shift = 0; shift < 32; shift += kBits) {  // three times: the last one writes to the list
    uint32_t next[(1 << kBits) + 1] = {};
    const auto digit = [&](const Cell& e) { return e.key >> shift & ((1 << kBits) - 1); };
    for (int64_t e = 0; e < list.n; ++e) ++next[digit(from[e]) + 1];
    std::partial_sum(std::begin(next), std::end(next), std::begin(next));
    for (int64_t e = 0; e < list.n; ++e) to[next[digit(from[e])]++] = from[e];
    std::swap(from, to);
  }
  index(list);
}

// Cells go to the side of their rows.
void SparseColumnPartition::move(std::vector<Way>& ways) {
  if (ways.empty()) return;
  const PartitionKernels& kernels = POLYLEAF_SELECT(partition_kernels);
  parallel_for(workers_, static_cast<int64_t>(ways.size()), [&](int64_t task, int) {
    List& list = *lists_[ways[task].division->rows.cells];
    if (list.has_positions) leave_out_gone(list);
  });
  int64_t n_ranks = 0;
  for (const Way& way : ways) n_ranks += way.division->rows.size() / 64 + 1;
  ranks_.reserve(static_cast<size_t>(n_ranks));
  n_ranks = 0;
  std::vector<Piece> pieces;
  for (size_t i = 0; i < ways.size(); ++i) {
    const List& list = *lists_[ways[i].division->rows.cells];
    uint32_t* ranks = ranks_.data() + n_ranks;
    const int64_t n_rows = ways[i].division->rows.size();
    n_ranks += n_rows / 64 + 1;
    kernels.rank(ways[i].bits, n_rows, ranks);
    ways[i].ranks = ranks;
    for (int64_t e = 0; e < list.n; e += kEntryBlock)
      pieces.push_back({i, list.cells + e, std::min(kEntryBlock, list.n - e)});
  }
  parallel_for(workers_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    Piece& p = pieces[task];
    const uint8_t* bits = ways[p.way].bits;
    for (const Cell* e = p.begin; e != p.begin + p.n; ++e)
      p.n_left += bits[e->row / 8] >> (e->row % 8) & 1;
  });
  for (Piece& p : pieces) {
    p.left_to = ways[p.way].n_left;
    p.right_to = p.begin - lists_[ways[p.way].division->rows.cells]->cells - p.left_to;
    ways[p.way].n_left += p.n_left;
  }
  for (Way& way : ways) {
    RowPartitioner::PartitionRequest& d = *way.division;
    const int64_t n = lists_[d.rows.cells]->n;
    d.left.cells = take(way.n_left, d.left.size());
    d.right.cells = take(n - way.n_left, d.right.size());
  }
  parallel_for(workers_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    const Piece& p = pieces[task];
    const Way& way = ways[p.way];
    kernels.move_entries(p.begin, p.n, way.bits, way.ranks,
                         lists_[way.division->left.cells]->own.data() + p.left_to,
                         lists_[way.division->right.cells]->own.data() + p.right_to);
  });
  for (const Way& way : ways) {
    index(*lists_[way.division->left.cells]);
    index(*lists_[way.division->right.cells]);
    give_back(way.division->rows.cells);
  }
}

}  // namespace polyleaf
