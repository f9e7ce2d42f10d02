#include "grower/sparse_column_partition.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/parallel.h"
#include "grower/host_row_partitioner.h"

namespace polyleaf {
namespace {

constexpr int64_t kEntryBlock = 32768;  // entries moved by one task
// The larger child keeps the parent's list if the smaller child has at most 1 in so many of its
// rows and entries: sorting an entry costs about as much as moving this many.
constexpr int64_t kMaxSmallChildShare = 8;
// Entries per feature from which a list stores where each feature begins.
constexpr int64_t kMinEntriesPerFeature = 4;

}  // namespace

struct SparseColumnPartition::Plan {
  RowPartitioner::PartitionRequest* request;
  const uint8_t* bits;
  bool keeps_list = false;        // the larger child keeps the list
  RowRange* smaller = nullptr;    // the smaller child, if the list is kept
  const uint32_t* ids = nullptr;  // row ids of the smaller child
  int64_t n_smaller = 0;          // entries of the smaller child
  const uint32_t* ranks = nullptr;
  int64_t n_left = 0;  // entries
};

// A block of entries of one request, and its destination.
struct SparseColumnPartition::Piece {
  size_t plan;
  const SparseEntry* begin;
  int64_t n, n_left = 0, left_to = 0, right_to = 0;
};

SparseColumnPartition::SparseColumnPartition(const SparseColumns& columns, const Context& context)
    : columns_(columns), context_(context), scratch_(static_cast<size_t>(context.n_threads)) {}

int32_t SparseColumnPartition::start() {
  for (const auto& list : lists_) list->in_use = false;
  if (columns_.n_entries() == 0) return -1;
  const int32_t root = acquire_list(0, 0);
  List& list = *lists_[root];
  list.entries = columns_.entries();
  list.n = list.n_left = columns_.n_entries();
  list.n_rows = columns_.n_rows();
  if (list.n >= kMinEntriesPerFeature * columns_.n_features()) list.begin = columns_.begin();
  return root;
}

// Return the unused list whose memory fits best.
int32_t SparseColumnPartition::acquire_list(int64_t n_entries, int64_t n_rows) {
  const auto space = [&](size_t i) { return static_cast<int64_t>(lists_[i]->own.size()); };
  size_t best = lists_.size();
  for (size_t i = 0; i < lists_.size(); ++i) {
    if (lists_[i]->in_use) continue;
    const bool fits = space(i) >= n_entries;
    const bool best_fits = best < lists_.size() && space(best) >= n_entries;
    if (best == lists_.size() ||
        (fits ? !best_fits || space(i) < space(best) : !best_fits && space(i) > space(best)))
      best = i;
  }
  if (best == lists_.size()) lists_.push_back(std::make_unique<List>());
  List& list = *lists_[best];
  list.in_use = true;
  if (space(best) < n_entries) trim(n_entries);
  list.own.reserve(static_cast<size_t>(n_entries));
  list.entries = list.own.data();
  list.n = list.n_left = n_entries;
  list.n_rows = n_rows;
  list.has_positions = false;
  list.begin = nullptr;
  return static_cast<int32_t>(best);
}

// Free memory of unused lists while all lists together hold more than twice the number of entries
// (those of nodes and of their children).
void SparseColumnPartition::trim(int64_t needed) {
  int64_t held = needed;
  for (const auto& list : lists_) held += static_cast<int64_t>(list->own.size());
  for (const auto& list : lists_) {
    if (held <= 2 * columns_.n_entries()) return;
    if (list->in_use) continue;
    held -= static_cast<int64_t>(list->own.size());
    list->own = Buffer<SparseEntry>();
  }
}

void SparseColumnPartition::index(List& list) {
  list.begin = nullptr;
  if (list.n < kMinEntriesPerFeature * columns_.n_features()) return;
  list.own_begin.assign(static_cast<size_t>(columns_.n_features()) + 1, 0);
  for (const SparseEntry* e = list.entries; e != list.entries + list.n; ++e)
    ++list.own_begin[e->number() + 1];
  std::partial_sum(list.own_begin.begin(), list.own_begin.end(), list.own_begin.begin());
  list.begin = list.own_begin.data();
}

EntryRange SparseColumnPartition::range(int32_t at, int64_t first, int64_t last) const {
  if (at < 0) return {};
  const List& list = *lists_[at];
  const uint32_t* positions = list.has_positions ? list.positions.data() : nullptr;
  if (list.begin != nullptr)
    return {list.entries + list.begin[first], list.entries + list.begin[last], positions};
  const auto before = [](const SparseEntry& entry, int64_t number) {
    return entry.number() < number;
  };
  const SparseEntry* end = list.entries + list.n;
  const SparseEntry* begin = std::lower_bound(list.entries, end, first, before);
  return {begin, std::lower_bound(begin, end, last, before), positions};
}

// Entries of rows outside all groups are dropped.
void SparseColumnPartition::group(const uint32_t* ids, int64_t n_rows,
                                  std::vector<RowRange>& groups) {
  for (const auto& list : lists_) list->in_use = false;
  for (RowRange& group : groups) group.entry_list = -1;
  if (columns_.n_entries() == 0) return;
  constexpr uint32_t kNoGroup = UINT32_MAX;
  std::vector<uint32_t> row_group(n_rows, kNoGroup), row_position(n_rows);
  for (size_t g = 0; g < groups.size(); ++g)
    for (int64_t i = groups[g].begin; i < groups[g].end; ++i) {
      row_group[ids[i]] = static_cast<uint32_t>(g);
      row_position[ids[i]] = static_cast<uint32_t>(i - groups[g].begin);
    }
  // Blocks are counted first, then written at offsets that do not depend on the thread count.
  const int64_t n_blocks = Block::count(columns_.n_entries(), kEntryBlock);
  std::vector<int64_t> next(static_cast<size_t>(n_blocks) * groups.size(), 0);
  const auto each = [&](int64_t block, auto&& use) {
    const Block range(columns_.n_entries(), kEntryBlock, block);
    for (int64_t e = range.begin; e < range.end; ++e) {
      const SparseEntry& entry = columns_.entries()[e];
      const uint32_t g = row_group[entry.row];
      if (g != kNoGroup) use(entry, g, next[block * groups.size() + g]);
    }
  };
  parallel_for(context_, n_blocks, [&](int64_t block, int) {
    each(block, [](const SparseEntry&, uint32_t, int64_t& n) { ++n; });
  });
  std::vector<SparseEntry*> to(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    int64_t n = 0;
    for (int64_t block = 0; block < n_blocks; ++block)
      n += std::exchange(next[block * groups.size() + g], n);
    groups[g].entry_list = acquire_list(n, groups[g].size());
    to[g] = lists_[groups[g].entry_list]->own.data();
  }
  parallel_for(context_, n_blocks, [&](int64_t block, int) {
    each(block, [&](const SparseEntry& entry, uint32_t g, int64_t& at) {
      to[g][at++] = {row_position[entry.row], entry.key};
    });
  });
  for (const RowRange& group : groups) index(*lists_[group.entry_list]);
}

void SparseColumnPartition::partition_rows(std::vector<RowPartitioner::PartitionRequest>& requests,
                                           const std::vector<const uint8_t*>& bits,
                                           const uint32_t* const* ids) {
  std::vector<Plan> shrinking, moving;
  for (size_t i = 0; i < requests.size(); ++i) {
    RowPartitioner::PartitionRequest& request = requests[i];
    request.left.entry_list = request.right.entry_list = -1;
    if (request.rows.entry_list < 0) continue;
    if (!request.left_is_splittable && !request.right_is_splittable) {
      release_list(request.rows.entry_list);
      continue;
    }
    const Plan plan = make_plan(request, bits[i], ids);
    (plan.keeps_list ? shrinking : moving).push_back(plan);
  }
  for (Plan& plan : shrinking) {
    RowPartitioner::PartitionRequest& request = *plan.request;
    (plan.smaller == &request.left ? request.right : request.left).entry_list =
        request.rows.entry_list;
    if (plan.smaller == &request.left ? request.left_is_splittable : request.right_is_splittable)
      plan.smaller->entry_list = acquire_list(plan.n_smaller, plan.smaller->size());
  }
  parallel_for(context_, static_cast<int64_t>(shrinking.size()),
               [&](int64_t task, int thread) { remove_child_rows(shrinking[task], thread); });
  move_entries(moving);
}

SparseColumnPartition::Plan SparseColumnPartition::make_plan(
    RowPartitioner::PartitionRequest& request, const uint8_t* bits,
    const uint32_t* const* ids) const {
  Plan plan{&request, bits};
  const List& list = *lists_[request.rows.entry_list];
  plan.smaller = request.left.size() <= request.right.size() ? &request.left : &request.right;
  if (list.begin == nullptr || plan.smaller->size() * kMaxSmallChildShare > request.rows.size())
    return plan;
  plan.ids = ids[plan.smaller->copy] + plan.smaller->begin;
  for (int64_t i = 0; i < plan.smaller->size(); ++i)
    plan.n_smaller += static_cast<int64_t>(columns_.row_keys(plan.ids[i]).size());
  plan.keeps_list = plan.n_smaller * kMaxSmallChildShare <= list.n_left;
  return plan;
}

// Mark the smaller child's rows as removed.
void SparseColumnPartition::remove_child_rows(Plan& plan, int thread) {
  const RowPartitioner::PartitionRequest& request = *plan.request;
  List& list = *lists_[request.rows.entry_list];
  const uint32_t leaves = plan.smaller == &request.left ? 1 : 0;
  list.positions.reserve(static_cast<size_t>(list.n_rows));
  uint32_t* positions = list.positions.data();
  uint32_t next = 0;
  int64_t row = 0;  // row of the node
  for (int64_t i = 0; i < list.n_rows; ++i) {
    if (list.has_positions && positions[i] == EntryRange::kRemoved) continue;
    const bool stays = (plan.bits[row / 8] >> (row % 8) & 1u) != leaves;
    positions[i] = stays ? next : EntryRange::kRemoved;
    next += stays;
    ++row;
  }
  list.has_positions = true;
  list.n_left -= plan.n_smaller;
  if (plan.smaller->entry_list >= 0) sort_rows(plan, thread);
  if (2 * list.n_left < list.n) compact(list);
}

void SparseColumnPartition::compact(List& list) {
  Buffer<SparseEntry> left(static_cast<size_t>(list.n_left));
  SparseEntry* to = left.data();
  for (const SparseEntry* e = list.entries; e != list.entries + list.n; ++e) {
    const uint32_t place = list.positions[e->row];
    if (place == EntryRange::kRemoved) continue;
    *to++ = {place, e->key};
  }
  list.own = std::move(left);
  list.entries = list.own.data();
  list.n = list.n_left;
  list.has_positions = false;
  index(list);
}

// Collect the entries of a few rows and sort them by key: a radix sort with 11-bit digits.
void SparseColumnPartition::sort_rows(const Plan& plan, int thread) {
  List& list = *lists_[plan.smaller->entry_list];
  Buffer<SparseEntry>& space = scratch_[thread];
  space.reserve(static_cast<size_t>(list.n));
  SparseEntry* from = space.data();
  SparseEntry* to = list.own.data();
  SparseEntry* at = from;
  for (int64_t i = 0; i < plan.smaller->size(); ++i)
    for (const uint32_t key : columns_.row_keys(plan.ids[i]))
      *at++ = {static_cast<uint32_t>(i), key};
  constexpr int kBits = 11;
  for (int shift = 0; shift < 32;
       shift += kBits) {  // three passes; the last one writes to the list
    uint32_t next[(1 << kBits) + 1] = {};
    const auto digit = [&](const SparseEntry& e) { return e.key >> shift & ((1 << kBits) - 1); };
    for (int64_t e = 0; e < list.n; ++e) ++next[digit(from[e]) + 1];
    std::partial_sum(std::begin(next), std::end(next), std::begin(next));
    for (int64_t e = 0; e < list.n; ++e) to[next[digit(from[e])]++] = from[e];
    std::swap(from, to);
  }
  index(list);
}

// Move entries to the side of their rows.
void SparseColumnPartition::move_entries(std::vector<Plan>& plans) {
  if (plans.empty()) return;
  const PartitionKernels& kernels = POLYLEAF_SELECT(partition_kernels);
  parallel_for(context_, static_cast<int64_t>(plans.size()), [&](int64_t task, int) {
    List& list = *lists_[plans[task].request->rows.entry_list];
    if (list.has_positions) compact(list);
  });
  int64_t n_ranks = 0;
  for (const Plan& plan : plans) n_ranks += plan.request->rows.size() / 64 + 1;
  ranks_.reserve(static_cast<size_t>(n_ranks));
  n_ranks = 0;
  std::vector<Piece> pieces;
  for (size_t i = 0; i < plans.size(); ++i) {
    const List& list = *lists_[plans[i].request->rows.entry_list];
    uint32_t* ranks = ranks_.data() + n_ranks;
    const int64_t n_rows = plans[i].request->rows.size();
    n_ranks += n_rows / 64 + 1;
    kernels.rank(plans[i].bits, n_rows, ranks);
    plans[i].ranks = ranks;
    for (int64_t e = 0; e < list.n; e += kEntryBlock)
      pieces.push_back({i, list.entries + e, std::min(kEntryBlock, list.n - e)});
  }
  parallel_for(context_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    Piece& p = pieces[task];
    const uint8_t* bits = plans[p.plan].bits;
    for (const SparseEntry* e = p.begin; e != p.begin + p.n; ++e)
      p.n_left += bits[e->row / 8] >> (e->row % 8) & 1;
  });
  for (Piece& p : pieces) {
    p.left_to = plans[p.plan].n_left;
    p.right_to = p.begin - lists_[plans[p.plan].request->rows.entry_list]->entries - p.left_to;
    plans[p.plan].n_left += p.n_left;
  }
  for (Plan& plan : plans) {
    RowPartitioner::PartitionRequest& request = *plan.request;
    const int64_t n = lists_[request.rows.entry_list]->n;
    request.left.entry_list = acquire_list(plan.n_left, request.left.size());
    request.right.entry_list = acquire_list(n - plan.n_left, request.right.size());
  }
  parallel_for(context_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    const Piece& p = pieces[task];
    const Plan& plan = plans[p.plan];
    kernels.move_entries(p.begin, p.n, plan.bits, plan.ranks,
                         lists_[plan.request->left.entry_list]->own.data() + p.left_to,
                         lists_[plan.request->right.entry_list]->own.data() + p.right_to);
  });
  for (const Plan& plan : plans) {
    index(*lists_[plan.request->left.entry_list]);
    index(*lists_[plan.request->right.entry_list]);
    release_list(plan.request->rows.entry_list);
  }
}

}  // namespace polyleaf
