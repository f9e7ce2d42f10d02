#include "search/allreduce_histograms.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <stdexcept>

#include "search/packed_histogram.h"

namespace polyleaf {
namespace {

constexpr size_t kMaxBatchBytes = size_t{1} << 28;  // of histograms that are sent at once

// Return the number of int32 that mark the filled ones among some bins.
int64_t count_marks(int64_t n_bins) {
  return (n_bins + 31) / 32;
}

// Return the numbers of a bin that are sent: used lanes, and the count if it has no lane.
int64_t count_numbers(const ChannelLayout& layout) {
  return layout.n_used() + (layout.count_lane < 0);
}

[[noreturn]] void throw_out_of_sync() {
  throw std::runtime_error(
      "Ranks are out of sync: they have found splits of different numbers of nodes.");
}

// Serialises splits.
class Writer {
 public:
  void write(const TileSplit& split) {
    put(Head{split.sum, split.penalised_gain, split.feature, split.bin, split.missing_left,
             split.left_count, split.n_absent, split.set});
    if (split.feature < 0) return;
    put_all(split.left);
    put_all(split.left_products);
    put_all(split.products);
    put_all(split.absent);
  }
  std::vector<std::byte> sent;

  struct Head {
    float sum, penalised_gain;
    int32_t feature, bin, missing_left, left_count, n_absent;
    CategorySet set;
  };

 private:
  template <class T>
  void put(const T& value) {
    put(&value, sizeof value);
  }
  void put(const void* from, size_t n) {
    const auto* bytes = static_cast<const std::byte*>(from);
    sent.insert(sent.end(), bytes, bytes + n);
  }
  template <class T>
  void put_all(const std::vector<T>& values) {
    put(static_cast<int32_t>(values.size()));
    put(values.data(), values.size() * sizeof(T));
  }
};

// Deserialises splits of a rank that has sent as many.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> sent) : rest_(sent) {}

  TileSplit read() {
    Writer::Head head;
    get(&head, sizeof head);
    TileSplit split;
    split.sum = head.sum;
    split.penalised_gain = head.penalised_gain;
    split.feature = head.feature;
    split.bin = head.bin;
    split.missing_left = head.missing_left != 0;
    split.left_count = head.left_count;
    split.n_absent = head.n_absent;
    split.set = head.set;
    if (split.feature < 0) return split;
    get_all(split.left);
    get_all(split.left_products);
    get_all(split.products);
    get_all(split.absent);
    return split;
  }
  bool is_at_end() const { return rest_.empty(); }

 private:
  void get(void* to, size_t n) {
    if (rest_.size() < n) throw_out_of_sync();
    std::memcpy(to, rest_.data(), n);
    rest_ = rest_.subspan(n);
  }
  template <class T>
  void get_all(std::vector<T>& values) {
    int32_t n = 0;
    get(&n, sizeof n);
    if (n < 0 || rest_.size() < static_cast<size_t>(n) * sizeof(T)) throw_out_of_sync();
    values.resize(static_cast<size_t>(n));
    get(values.data(), values.size() * sizeof(T));
  }

  std::span<const std::byte> rest_;
};

}  // namespace

void SharedTiles::assign_tiles(const Bins& bins, const std::vector<int>& tiles,
                               const ChannelLayout& layout) {
  const int64_t n_ranks = context_.communicator->size();
  n_numbers_ = layout.lanes + 1;
  n_bins_.clear();
  int64_t all = 0, before = 0;
  for (int t : tiles) {
    n_bins_.push_back(count_bins(bins.tile(t)));
    all += n_bins_.back();
  }
  owner_.clear();
  for (const int64_t n : n_bins_) {
    // Rank of its middle bin.
    owner_.push_back(static_cast<int>((2 * before + n) * n_ranks / (2 * all)));
    before += n;
  }
}

size_t SharedTiles::get_batch_size() const {
  int64_t ints = 1;
  for (const int64_t n : n_bins_) ints += count_marks(n) + n * n_numbers_;
  return std::max<size_t>(1, kMaxBatchBytes / (static_cast<size_t>(ints) * sizeof(int32_t)));
}

void SharedTiles::start(std::vector<const ChannelLayout*> layouts) {
  layouts_ = std::move(layouts);
  pieces_.resize(layouts_.size() * n_bins_.size());
  begin_.clear();
  int64_t at = 0;
  for (int r = 0; r < context_.communicator->size(); ++r) {
    begin_.push_back(at);
    for (size_t h = 0; h < layouts_.size(); ++h)
      for (size_t i = 0; i < n_bins_.size(); ++i) {
        if (owner_[i] != r) continue;
        pieces_[h * n_bins_.size() + i].begin = at;
        at += count_marks(n_bins_[i]) + n_bins_[i] * count_numbers(*layouts_[h]);
      }
  }
  std::swap(sent_, buffer_);
  if (buffer_ == nullptr || buffer_->size() < static_cast<size_t>(at))
    buffer_ = std::make_shared<Buffer<int32_t>>(static_cast<size_t>(at));
}

void SharedTiles::pack(size_t histogram, int i, const TileBins& bins) {
  const ChannelLayout& layout = *layouts_[histogram];
  Piece& piece = pieces_[histogram * n_bins_.size() + i];
  int32_t* to = buffer_->data() + piece.begin;
  const int32_t* end =
      POLYLEAF_SELECT(histogram_kernels)
          .pack_filled(bins.sums, bins.counts, n_bins_[i], layout.lanes, layout.n_used(),
                       reinterpret_cast<uint32_t*>(to), to + count_marks(n_bins_[i]));
  piece.n = end - to;
}

void SharedTiles::exchange() {
  std::vector<Communicator::Block> blocks;
  int32_t* ints = buffer_->data();
  for (int r = 0; r < context_.communicator->size(); ++r) {
    int64_t end = begin_[r];
    for (size_t p = 0; p < pieces_.size(); ++p) {
      if (owner_[p % n_bins_.size()] != r) continue;
      if (pieces_[p].begin != end)
        std::memmove(ints + end, ints + pieces_[p].begin,
                     sizeof(int32_t) * static_cast<size_t>(pieces_[p].n));
      end += pieces_[p].n;
    }
    blocks.push_back(
        {std::as_bytes(std::span(ints + begin_[r], static_cast<size_t>(end - begin_[r]))),
         buffer_});
  }
  received_ = context_.communicator->alltoall(blocks);
  find_received_pieces();
}

// Find the pieces of this rank's tiles in the blocks of all ranks.
void SharedTiles::find_received_pieces() {
  const size_t n_ranks = received_.size();
  received_pieces_.assign(pieces_.size() * n_ranks, {});
  for (size_t r = 0; r < n_ranks; ++r) {
    const std::span<const std::byte> bytes = received_[r].bytes;
    std::span<const int32_t> rest(reinterpret_cast<const int32_t*>(bytes.data()),
                                  bytes.size() / sizeof(int32_t));
    for (size_t p = 0; p < pieces_.size(); ++p) {
      const size_t i = p % n_bins_.size();
      if (!owns(static_cast<int>(i))) continue;
      const auto n_marks = static_cast<size_t>(count_marks(n_bins_[i]));
      if (rest.size() < n_marks) throw_out_of_sync();
      int64_t n_filled = 0;
      for (const int32_t marks : rest.first(n_marks))
        n_filled += std::popcount(static_cast<uint32_t>(marks));
      const size_t n =
          n_marks + static_cast<size_t>(n_filled * count_numbers(*layouts_[p / n_bins_.size()]));
      if (rest.size() < n) throw_out_of_sync();
      received_pieces_[p * n_ranks + r] = rest.first(n);
      rest = rest.subspan(n);
    }
    if (!rest.empty()) throw_out_of_sync();
  }
}

void SharedTiles::add(size_t histogram, int i, const TileBins& bins) const {
  const ChannelLayout& layout = *layouts_[histogram];
  const size_t n_ranks = received_.size(), p = histogram * n_bins_.size() + i;
  for (size_t r = 0; r < n_ranks; ++r) {
    const std::span<const int32_t> piece = received_pieces_[p * n_ranks + r];
    POLYLEAF_SELECT(histogram_kernels)
        .add_filled(piece.data() + count_marks(n_bins_[i]), piece.data() + piece.size(),
                    reinterpret_cast<const uint32_t*>(piece.data()), n_bins_[i], layout.lanes,
                    layout.n_used(), bins.sums, bins.counts);
  }
}

std::vector<TileSplit> SharedTiles::allgather(const std::vector<TileSplit>& found) const {
  Writer writer;
  for (const TileSplit& split : found) writer.write(split);
  std::vector<TileSplit> all;
  for (const std::vector<std::byte>& part : context_.communicator->allgather(writer.sent)) {
    Reader reader(part);
    for (size_t i = 0; i < found.size(); ++i) all.push_back(reader.read());
    if (!reader.is_at_end()) throw_out_of_sync();
  }
  return all;
}

}  // namespace polyleaf
