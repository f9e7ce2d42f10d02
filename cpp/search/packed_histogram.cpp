#include "search/packed_histogram.h"

#include <bit>
#include <vector>

#include "base/check.h"

namespace polyleaf {
namespace {

uint64_t get_max_digit(const ChannelRange& channel, int64_t rows) {
  return static_cast<uint64_t>(rows) * static_cast<uint64_t>(int64_t{channel.most} - channel.least);
}

bool fits(std::span<const ChannelRange> channels, int64_t rows) {
  int bits = 0;
  for (const ChannelRange& channel : channels) bits += std::bit_width(get_max_digit(channel, rows));
  return bits <= 64;
}

}  // namespace

PackedSumFormat PackedSumFormat::make(std::span<const ChannelRange> values, int64_t rows) {
  PackedSumFormat format;
  if (values.size() >= kChannels || rows < 1) return format;
  std::vector<ChannelRange> channels(values.begin(), values.end());
  channels.push_back({0, 1});
  format.n_values = static_cast<int>(values.size());
  if (!fits(channels, rows))
    rows = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows)));
  while (rows > 0 && !fits(channels, rows)) rows /= 2;
  if (rows == 0) return format;
  format.max_rows = rows;
  int shift = 0;
  for (size_t j = 0; j < channels.size(); ++j) {
    const int width = std::bit_width(get_max_digit(channels[j], rows));
    if (width == 0) continue;  // always zero, at any shift
    format.shift[j] = static_cast<uint64_t>(shift);
    format.mask[j] = ~uint64_t{0} >> (64 - width);
    format.bias[j] =
        static_cast<uint64_t>(rows) * static_cast<uint64_t>(-int64_t{channels[j].least});
    format.total_bias += format.bias[j] << shift;
    shift += width;
  }
  POLYLEAF_DCHECK(shift <= 64);
  return format;
}

}  // namespace polyleaf
