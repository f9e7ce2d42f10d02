// Sums of bins and of rows in order of bins (tile_scan.h).
#include "base/kernels/lanes.h"
#include "search/dense_scan.h"
#include "split_gain/kernels/candidates.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {
namespace {

void order_rows(const uint64_t* words, int64_t n, int slot, int stride, uint32_t* counts,
                uint32_t* start, uint16_t* order) {
  for (int b = 0; b < stride; ++b) counts[b] = 0;
  const int shift = 8 * slot;
  for (int64_t i = 0; i < n; ++i) ++counts[(words[i] >> shift) & 255];
  uint32_t next[256];
  uint32_t before = 0;
  int b = 0;
#ifdef __AVX512F__
  for (; b + 16 <= stride; b += 16) {
    const __m512i count = _mm512_loadu_si512(counts + b);
    const __m512i sums = running_sums(count, static_cast<int32_t>(before));
    const __m512i first = _mm512_sub_epi32(sums, count);
    _mm512_storeu_si512(start + b, first);
    _mm512_storeu_si512(next + b, first);
    before = static_cast<uint32_t>(last_lane(sums));
  }
#endif
  for (; b < stride; ++b) {
    start[b] = next[b] = before;
    before += counts[b];
  }
  for (int64_t i = 0; i < n; ++i)
    order[next[(words[i] >> shift) & 255]++] = static_cast<uint16_t>(i);
}

void add_rows(const RowsByBin& rows, int lanes, uint32_t first, uint32_t last, int32_t* out) {
  for (uint32_t i = first; i < last; ++i) {
    const int16_t* at = rows.channels + static_cast<int64_t>(rows.order[i]) * lanes;
    for (int j = 0; j < lanes; j += 4)
      store(out + j, load<i32x4>(out + j) + __builtin_convertvector(load<i16x4>(at + j), i32x4));
  }
}

void add_bins(const int32_t* sums, int lanes, int n_bins, int32_t* out) {
  if (lanes == 16) {  // the sum stays in a register
    i32x16 total = load<i32x16>(out);
    for (int b = 0; b < n_bins; ++b) total += load<i32x16>(sums + b * 16);
    store(out, total);
    return;
  }
  for (int b = 0; b < n_bins; ++b)
    for (int j = 0; j < lanes; j += 4)
      store(out + j,
            load<i32x4>(out + j) + load<i32x4>(sums + static_cast<int64_t>(b) * lanes + j));
}

}  // namespace

const SumKernels sum_kernels = {add_bins, order_rows, add_rows};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
