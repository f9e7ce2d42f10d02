#include "search/shared_tiles.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>

namespace polyleaf {
namespace {

constexpr size_t kRoom = size_t{1} << 28;  // bytes of histograms that are sent at once
constexpr int64_t kSpare = 16;             // vectors may read past the last bin, and begin at multiples of it

int64_t round_up(int64_t n) {
  return (n + kSpare - 1) / kSpare * kSpare;
}

// A split as it is sent; sums follow.
struct SentSplit {
  float sum;
  int32_t feature, bin, missing_left, left_count;
  CategorySet set;
};

}  // namespace

void SharedTiles::share_out(const Bins& bins, const std::vector<int>& tiles, const ChannelLayout& layout) {
  const int64_t n_ranks = workers_.communicator->size();
  const auto n_bins = [&](int t) { return int64_t{bins.tile(t).n_features} * bins.tile(t).stride(); };
  lanes_ = layout.lanes;
  counts_apart_ = layout.count_lane < 0;
  int64_t all = 0, before = 0;
  for (int t : tiles) all += n_bins(t);
  owner_.clear();
  sums_.clear();
  counts_.clear();
  width_.assign(n_ranks, 0);
  for (int t : tiles) {
    const int64_t n = n_bins(t);
    const auto rank = static_cast<int>((2 * before + n) * n_ranks / (2 * all));  // where its middle lies
    owner_.push_back(rank);
    sums_.push_back(width_[rank]);
    counts_.push_back(width_[rank] + round_up(n * lanes_ + kSpare));
    width_[rank] = counts_.back() + (counts_apart_ ? round_up(n) : 0);
    before += n;
  }
}

size_t SharedTiles::at_once() const {
  int64_t ints = 0;
  for (int64_t width : width_) ints += width;
  const size_t bytes = std::max<size_t>(1, static_cast<size_t>(ints) * sizeof(int32_t));
  return std::max<size_t>(1, kRoom / bytes);
}

void SharedTiles::start(size_t n_histograms) {
  begin_.assign(1, 0);
  for (int64_t width : width_) begin_.push_back(begin_.back() + static_cast<int64_t>(n_histograms) * width);
  room_.reserve(static_cast<size_t>(begin_.back()));
  std::memset(room_.data(), 0, sizeof(int32_t) * static_cast<size_t>(begin_.back()));
}

TileBins SharedTiles::bins(size_t histogram, int i) {
  const int rank = owner_[i];
  int32_t* part = room_.data() + begin_[rank] + static_cast<int64_t>(histogram) * width_[rank];
  return {part + sums_[i], counts_apart_ ? reinterpret_cast<uint32_t*>(part + counts_[i]) : nullptr};
}

void SharedTiles::add_ranks() {
  workers_.communicator->sum_shares({room_.data(), static_cast<size_t>(begin_.back())}, begin_);
}

std::vector<TileSplit> SharedTiles::gather(const std::vector<TileSplit>& found) const {
  const size_t n_left = static_cast<size_t>(lanes_) + kSpare;
  const size_t size = sizeof(SentSplit) + n_left * sizeof(int32_t);
  std::vector<std::byte> sent(found.size() * size);
  for (size_t i = 0; i < found.size(); ++i) {
    const TileSplit& split = found[i];
    const SentSplit head{split.sum,          split.feature,    split.bin,
                         split.missing_left, split.left_count, split.set};
    std::memcpy(sent.data() + i * size, &head, sizeof head);
    if (split.feature >= 0)
      std::memcpy(sent.data() + i * size + sizeof head, split.left.data(), n_left * sizeof(int32_t));
  }
  std::vector<TileSplit> all;
  for (const std::vector<std::byte>& part : workers_.communicator->gather(sent)) {
    if (part.size() != sent.size())
      throw std::runtime_error("Ranks have lost step: they have found splits of different numbers of nodes.");
    for (size_t i = 0; i < found.size(); ++i) {
      SentSplit head;
      std::memcpy(&head, part.data() + i * size, sizeof head);
      TileSplit& split = all.emplace_back();
      split.sum = head.sum;
      split.feature = head.feature;
      split.bin = head.bin;
      split.missing_left = head.missing_left != 0;
      split.left_count = head.left_count;
      split.set = head.set;
      split.left.resize(n_left);
      std::memcpy(split.left.data(), part.data() + i * size + sizeof head, n_left * sizeof(int32_t));
    }
  }
  return all;
}

}  // namespace polyleaf
