#include "search/allreduce_histograms.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>

namespace polyleaf {
namespace {

constexpr size_t kMaxBatchBytes = size_t{1} << 28;  // of histograms that are sent at once
// Vectors may read past the last bin, and begin at multiples of it.
constexpr int64_t kPadding = 16;

int64_t round_up(int64_t n) {
  return (n + kPadding - 1) / kPadding * kPadding;
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

  [[noreturn]] static void throw_out_of_sync() {
    throw std::runtime_error(
        "Ranks are out of sync: they have found splits of different numbers of nodes.");
  }

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
  const auto n_bins = [&](int t) {
    return int64_t{bins.tile(t).n_features} * bins.tile(t).stride();
  };
  lanes_ = layout.lanes;
  has_counts_ = layout.count_lane < 0 || layout.linear();
  int64_t all = 0, before = 0;
  for (int t : tiles) all += n_bins(t);
  owner_.clear();
  sums_.clear();
  counts_.clear();
  width_.assign(n_ranks, 0);
  for (int t : tiles) {
    const int64_t n = n_bins(t);
    // Rank of its middle bin.
    const auto rank = static_cast<int>((2 * before + n) * n_ranks / (2 * all));
    owner_.push_back(rank);
    sums_.push_back(width_[rank]);
    counts_.push_back(width_[rank] + round_up(n * lanes_ + kPadding));
    width_[rank] = counts_.back() + (has_counts_ ? round_up(n) : 0);
    before += n;
  }
}

size_t SharedTiles::get_batch_size() const {
  int64_t ints = 0;
  for (int64_t width : width_) ints += width;
  const size_t bytes = std::max<size_t>(1, static_cast<size_t>(ints) * sizeof(int32_t));
  return std::max<size_t>(1, kMaxBatchBytes / bytes);
}

void SharedTiles::start(size_t n_histograms) {
  begin_.assign(1, 0);
  for (int64_t width : width_)
    begin_.push_back(begin_.back() + static_cast<int64_t>(n_histograms) * width);
  const auto ints = static_cast<size_t>(begin_.back());
  std::swap(sent_, buffer_);
  if (buffer_ == nullptr || buffer_->size() < ints)
    buffer_ = std::make_shared<Buffer<int32_t>>(ints);
  std::memset(buffer_->data(), 0, sizeof(int32_t) * ints);
}

TileBins SharedTiles::bins(size_t histogram, int i, const ChannelLayout& layout) {
  const int rank = owner_[i];
  int32_t* part = buffer_->data() + begin_[rank] + static_cast<int64_t>(histogram) * width_[rank];
  return {part + sums_[i],
          layout.count_lane < 0 ? reinterpret_cast<uint32_t*>(part + counts_[i]) : nullptr};
}

void SharedTiles::reduce_scatter() {
  context_.communicator->reduce_scatter({buffer_->data(), static_cast<size_t>(begin_.back())},
                                        begin_, buffer_);
}

std::vector<TileSplit> SharedTiles::allgather(const std::vector<TileSplit>& found) const {
  Writer writer;
  for (const TileSplit& split : found) writer.write(split);
  std::vector<TileSplit> all;
  for (const std::vector<std::byte>& part : context_.communicator->allgather(writer.sent)) {
    Reader reader(part);
    for (size_t i = 0; i < found.size(); ++i) all.push_back(reader.read());
    if (!reader.is_at_end()) Reader::throw_out_of_sync();
  }
  return all;
}

}  // namespace polyleaf
