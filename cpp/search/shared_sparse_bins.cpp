#include "search/shared_sparse_bins.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "base/collective.h"
#include "base/parallel.h"
#include "search/packed_histogram.h"

namespace polyleaf {
namespace {

constexpr int64_t kMaxBatchInts = int64_t{1} << 21;  // that a rank receives at once, about

[[noreturn]] void throw_out_of_sync() {
  throw std::runtime_error("Ranks are out of sync: they have sent bins of different nodes.");
}

// Send for_ranks[r] to rank r; return what each rank has sent to this one.
template <class T>
std::vector<Lists<T>> exchange_lists(const Context& context,
                                     const std::vector<Lists<T>>& for_ranks) {
  std::vector<Communicator::Block> blocks;
  for (const Lists<T>& lists : for_ranks) {
    const auto packed = std::make_shared<std::vector<std::byte>>(packed_lists(lists));
    blocks.push_back({*packed, packed});
  }
  std::vector<Lists<T>> found;
  for (const Communicator::Block& block : context.communicator->alltoall(blocks))
    append_packed<T>(block.bytes, found.emplace_back(for_ranks[0].size()));
  return found;
}

}  // namespace

int64_t SparseBinList::find(int64_t number) const {
  const uint32_t from = SparseEntry::make_key(number, 0);
  int64_t first = 0, last = size_;
  while (first < last) {
    const int64_t middle = (first + last) / 2;
    if (key(middle) < from)
      first = middle + 1;
    else
      last = middle;
  }
  return first;
}

SharedSparseBins::SharedSparseBins(const Bins& bins, const Context& context)
    : bins_(bins), context_(context), scratch_(static_cast<size_t>(context.n_threads)) {}

void SharedSparseBins::Scratch::reserve(const ChannelLayout& layout) {
  sums.reserve(static_cast<size_t>(kMissingCode + 1) * layout.lanes + 16);
  totals.reserve(layout.lanes + 16);
  if (counts.size() > 0) return;
  counts.reserve(kMissingCode + 1 + 16);
  std::fill_n(counts.data(), counts.size(), 0u);
}

// Assign about as many entries to each rank.
void SharedSparseBins::start(const ChannelLayout& layout) {
  const SparseColumns& columns = bins_.sparse_columns();
  if (columns.n_features() == 0) return;
  for (Scratch& s : scratch_) s.reserve(layout);
  if (!edges_.empty()) return;
  const int64_t n_ranks = context_.communicator->size();
  std::vector<int64_t> n_entries;
  for (int64_t number = 0; number < columns.n_features(); ++number)
    n_entries.push_back(columns.begin()[number + 1] - columns.begin()[number]);
  context_.allreduce_sum(n_entries);
  const int64_t all = std::accumulate(n_entries.begin(), n_entries.end(), int64_t{0});
  edges_ = {0};
  int64_t before = 0;
  for (int64_t number = 0; number < columns.n_features(); ++number) {
    while (before * n_ranks > all * static_cast<int64_t>(edges_.size())) edges_.push_back(number);
    before += n_entries[number];
  }
  edges_.resize(static_cast<size_t>(n_ranks) + 1, columns.n_features());
}

SharedSparseBins::FeatureRange SharedSparseBins::get_range(int rank, int batch) const {
  const std::vector<int32_t>& begins = chosen_[rank].back();
  const auto get = [&](size_t at) { return at < begins.size() ? begins[at] : edges_[rank + 1]; };
  return {get(static_cast<size_t>(batch)), get(static_cast<size_t>(batch) + 1)};
}

int SharedSparseBins::plan(const SparseColumnPartition& lists, std::span<const Node> nodes,
                           int min_rows) {
  if (edges_.empty()) return 0;
  lists_ = &lists;
  nodes_.assign(nodes.begin(), nodes.end());
  counts_.resize(static_cast<size_t>(context_.communicator->size()));
  parallel_for(context_, static_cast<int64_t>(counts_.size()),
               [&](int64_t r, int) { counts_[r] = count_rows(static_cast<int>(r)); });
  choose_features(exchange_lists(context_, counts_), min_rows);
  size_t n_batches = 0;
  for (size_t r = 0; r < chosen_.size(); ++r) {
    n_batches = std::max(n_batches, chosen_[r].back().size());
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (chosen_[r][i].size() != counts_[r][i].size()) throw_out_of_sync();
  }
  return static_cast<int>(n_batches);
}

// Count this rank's rows of a rank's features in each node.
Lists<SharedSparseBins::FeatureCount> SharedSparseBins::count_rows(int rank) const {
  Lists<FeatureCount> counts;
  for (const Node& node : nodes_) {
    std::vector<FeatureCount>& found = counts.emplace_back();
    const EntryRange entries = lists_->range(node.list, edges_[rank], edges_[rank + 1]);
    for (const SparseEntry* e = entries.begin; e != entries.end; ++e) {
      if (entries.place(*e) == EntryRange::kRemoved) continue;
      if (found.empty() || found.back().number != e->number()) {
        if (node.allowed[bins_.sparse_columns().feature(e->number())] == 0) continue;
        found.push_back({e->number(), 0});
      }
      ++found.back().n_rows;
    }
  }
  return counts;
}

// Choose this rank's features that have enough rows, of the rows of all ranks, and tell the ranks.
void SharedSparseBins::choose_features(const std::vector<Lists<FeatureCount>>& counts,
                                       int min_rows) {
  const auto rank = static_cast<size_t>(context_.communicator->rank());
  const int64_t first = edges_[rank], n_features = edges_[rank + 1] - first;
  std::vector<int64_t> n_ints(static_cast<size_t>(n_features), 0);  // of all nodes
  std::vector<int32_t> n_rows(static_cast<size_t>(n_features), 0);
  std::vector<Lists<int32_t>> chosen(counts.size(), Lists<int32_t>(nodes_.size() + 1));
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto each = [&](const auto& use) {
      for (size_t r = 0; r < counts.size(); ++r)
        for (const FeatureCount& count : counts[r][i]) {
          const auto at = static_cast<size_t>(count.number - first);
          if (at >= n_rows.size()) throw_out_of_sync();
          use(r, count, at);
        }
    };
    const int64_t size = SparseBinList::count_ints(*nodes_[i].layout);
    each([&](size_t, const FeatureCount& count, size_t at) { n_rows[at] += count.n_rows; });
    each([&](size_t r, const FeatureCount& count, size_t at) {
      const bool is_enough = n_rows[at] >= min_rows;
      chosen[r][i].push_back(is_enough);
      if (is_enough) n_ints[at] += size * std::min(count.n_rows, kMissingCode + 1);
    });
    each([&](size_t, const FeatureCount&, size_t at) { n_rows[at] = 0; });
  }
  std::vector<int32_t> begins;
  int64_t n = 0;
  for (int64_t at = 0; at < n_features; ++at) {
    if (n_ints[at] == 0) continue;
    if (begins.empty() || n + n_ints[at] > kMaxBatchInts) {
      begins.push_back(static_cast<int32_t>(first + at));
      n = 0;
    }
    n += n_ints[at];
  }
  for (Lists<int32_t>& lists : chosen) lists.back() = begins;
  chosen_ = exchange_lists(context_, chosen);
}

void SharedSparseBins::exchange(int batch) {
  const size_t n_ranks = counts_.size();
  struct Piece {
    size_t rank, node;
    FeatureRange range;
    size_t first, last;        // of the counted features
    int64_t begin = 0, n = 0;  // in the buffer, which has room for all bins
  };
  std::vector<Piece> pieces;
  std::vector<int64_t> begin, ends;  // of the block of each rank
  int64_t at = 0;
  for (size_t r = 0; r < n_ranks; ++r) {
    begin.push_back(at);
    at += static_cast<int64_t>(nodes_.size());  // the number of bins of each node
    const FeatureRange range = get_range(static_cast<int>(r), batch);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const std::vector<FeatureCount>& counts = counts_[r][i];
      const auto find = [&](int64_t number) {
        return static_cast<size_t>(
            std::lower_bound(counts.begin(), counts.end(), number,
                             [](const FeatureCount& c, int64_t n) { return c.number < n; }) -
            counts.begin());
      };
      Piece& piece =
          pieces.emplace_back(Piece{r, i, range, find(range.first), find(range.last), at});
      for (size_t c = piece.first; c < piece.last; ++c)
        if (chosen_[r][i][c] != 0)
          at += std::min(counts[c].n_rows, kMissingCode + 1) *
                SparseBinList::count_ints(*nodes_[i].layout);
    }
  }
  std::swap(sent_, buffer_);
  if (buffer_ == nullptr || buffer_->size() < static_cast<size_t>(at))
    buffer_ = std::make_shared<Buffer<int32_t>>(static_cast<size_t>(at));
  int32_t* ints = buffer_->data();
  parallel_for(context_, static_cast<int64_t>(pieces.size()), [&](int64_t task, int thread) {
    Piece& piece = pieces[task];
    if (piece.first == piece.last) return;
    const Node& node = nodes_[piece.node];
    int32_t* to = ints + piece.begin;
    piece.n = pack(node, lists_->range(node.list, piece.range.first, piece.range.last),
                   counts_[piece.rank][piece.node].data() + piece.first,
                   chosen_[piece.rank][piece.node].data() + piece.first, to, scratch_[thread]) -
              to;
  });
  for (size_t r = 0; r < n_ranks; ++r) {
    int64_t end = begin[r] + static_cast<int64_t>(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Piece& piece = pieces[r * nodes_.size() + i];
      ints[begin[r] + static_cast<int64_t>(i)] =
          static_cast<int32_t>(piece.n / SparseBinList::count_ints(*nodes_[i].layout));
      if (piece.begin != end)
        std::memmove(ints + end, ints + piece.begin,
                     sizeof(int32_t) * static_cast<size_t>(piece.n));
      end += piece.n;
    }
    ends.push_back(end);
  }
  std::vector<Communicator::Block> blocks;
  for (size_t r = 0; r < n_ranks; ++r)
    blocks.push_back(
        {std::as_bytes(std::span(ints + begin[r], static_cast<size_t>(ends[r] - begin[r]))),
         buffer_});
  blocks_ = context_.communicator->alltoall(blocks);
  find_received_bins();
}

// Write the bins of the chosen ones among counted features; return the end.
int32_t* SharedSparseBins::pack(const Node& node, const EntryRange& entries,
                                const FeatureCount* counted, const int32_t* is_chosen, int32_t* out,
                                Scratch& scratch) const {
  const HistogramKernels& kernels = POLYLEAF_SELECT(histogram_kernels);
  const int lanes = node.layout->lanes, n_used = node.layout->n_used();
  scratch.present.reserve(static_cast<size_t>(entries.size()));
  for (const SparseEntry *e = entries.begin, *next; e != entries.end; e = next) {
    const int32_t number = e->number();
    SparseEntry* end = scratch.present.data();
    for (next = e; next != entries.end && next->number() == number; ++next) {
      const uint32_t place = entries.place(*next);
      *end = {place, next->key};
      end += place != EntryRange::kRemoved;
    }
    const int64_t n = end - scratch.present.data();
    if (n == 0 || node.allowed[bins_.sparse_columns().feature(number)] == 0) continue;
    POLYLEAF_DCHECK(counted->number == number && counted->n_rows == n);
    ++counted;
    if (*is_chosen++ == 0) continue;
    uint64_t touched[4] = {};
    std::fill_n(scratch.totals.data(), lanes, 0);
    kernels.build_sparse(scratch.present.data(), n, node.channels, lanes, kMissingCode,
                         scratch.sums.data(), scratch.counts.data(), scratch.totals.data(),
                         touched);
    for (int word = 0; word < 4; ++word)
      for (uint64_t bits = touched[word]; bits != 0; bits &= bits - 1) {
        const int code = word * 64 + __builtin_ctzll(bits);
        *out++ = static_cast<int32_t>(SparseEntry::make_key(number, code));
        std::memcpy(out, scratch.sums.data() + static_cast<size_t>(code) * lanes,
                    sizeof(int32_t) * static_cast<size_t>(n_used));
        out += n_used;
        const uint32_t count = std::exchange(scratch.counts[code], 0u);
        if (node.layout->count_lane < 0) *out++ = static_cast<int32_t>(count);
      }
  }
  return out;
}

void SharedSparseBins::find_received_bins() {
  received_.clear();
  std::vector<std::span<const int32_t>> heads, rest;
  for (const Communicator::Block& block : blocks_) {
    const std::span ints(reinterpret_cast<const int32_t*>(block.bytes.data()),
                         block.bytes.size() / sizeof(int32_t));
    if (ints.size() < nodes_.size()) throw_out_of_sync();
    heads.push_back(ints.first(nodes_.size()));
    rest.push_back(ints.subspan(nodes_.size()));
  }
  for (size_t i = 0; i < nodes_.size(); ++i)
    for (size_t r = 0; r < rest.size(); ++r) {
      const int64_t n = heads[r][i] * SparseBinList::count_ints(*nodes_[i].layout);
      if (n < 0 || rest[r].size() < static_cast<size_t>(n)) throw_out_of_sync();
      received_.emplace_back(rest[r].first(static_cast<size_t>(n)), *nodes_[i].layout);
      rest[r] = rest[r].subspan(static_cast<size_t>(n));
    }
  for (const std::span<const int32_t>& ints : rest)
    if (!ints.empty()) throw_out_of_sync();
}

}  // namespace polyleaf
