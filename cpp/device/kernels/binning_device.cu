// Binning kernels: the threshold search of data/kernels/binning_kernels.h, one number per thread.
#include "data/kernels/search_layout.h"
#include "device/kernels/block.h"

namespace polyleaf::on_device {

template <class T>
__device__ double read_as(const char* from) {
  return static_cast<double>(*reinterpret_cast<const T*>(from));
}

// Read a number by its ValueType (data/binning.h).
__device__ inline double read_number(const Numbers& a, int64_t row, int32_t column) {
  const char* const from = a.data + row * a.row_stride + column * a.column_stride;
  switch (a.type) {
    case 0:
      return read_as<uint8_t>(from);
    case 1:
      return read_as<int8_t>(from);
    case 2:
      return read_as<uint16_t>(from);
    case 3:
      return read_as<int16_t>(from);
    case 4:
      return read_as<uint32_t>(from);
    case 5:
      return read_as<int32_t>(from);
    case 6:
      return read_as<uint64_t>(from);
    case 7:
      return read_as<int64_t>(from);
    case 8:
      return read_as<float>(from);
    default:
      return read_as<double>(from);
  }
}

// Count thresholds below x in a row of ascending thresholds that ends with infinity.
template <class T>
__device__ int count_below(T x, const T* row) {
  int n = 0;
  for (int half = kSearchLanes / 2; half > 0; half /= 2)
    if (x > row[n + half - 1]) n += half;
  return n;
}

template <class T>
__device__ int find_bin(T x, const T* table, int32_t n_fine_rows) {
  const int j = n_fine_rows > 1 ? count_below(x, table) : 0;
  return kSearchLanes * j + count_below(x, table + kSearchLanes * (1 + j));
}

// Return the code of a number; 255 if it is missing or an unknown category.
__device__ inline int find_code(const BinSearch& search, int32_t feature, double x) {
  const SearchedFeature f = search.features[feature];
  if (x != x) return 255;
  if (f.kind == kFloat32) return find_bin(static_cast<float>(x), search.float32 + f.at, f.n);
  if (f.kind == kFloat64) return find_bin(x, search.float64 + f.at, f.n);
  int32_t begin = 0, end = f.n;
  while (begin < end) {
    const int32_t middle = (begin + end) / 2;
    if (search.known[f.at + middle] < x)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin < f.n && search.known[f.at + begin] == x ? search.known_codes[f.at + begin] : 255;
}

}  // namespace polyleaf::on_device

using namespace polyleaf::on_device;

extern "C" __global__ void pack_codes(const PackCodes a) {
  const DeviceTile& tile = a.tiles[blockIdx.y];
  const int missing = (1 << tile.log2_stride) - 1;
  for (int64_t row = thread_of_grid(); row < a.rows.n_rows; row += threads_of_grid()) {
    uint64_t word = 0;
    for (int s = 0; s < tile.n_features; ++s) {
      const int code =
          find_code(a.search, tile.features[s], read_number(a.rows, row, tile.features[s]));
      word |= static_cast<uint64_t>(code == 255 ? missing : code) << (8 * s);
    }
    a.words[blockIdx.y * a.rows.n_rows + row] = word;
  }
}

extern "C" __global__ void find_codes(const FindCodes a) {
  const int32_t feature =
      a.selected != nullptr ? a.selected[blockIdx.y] : static_cast<int32_t>(blockIdx.y);
  for (int64_t row = thread_of_grid(); row < a.rows.n_rows; row += threads_of_grid())
    a.codes[feature * a.rows.n_rows + row] =
        static_cast<uint8_t>(find_code(a.search, feature, read_number(a.rows, row, feature)));
}

extern "C" __global__ void gather_rows(const GatherRows a) {
  const int64_t k = a.from.n_columns;
  for (int64_t i = thread_of_grid(); i < a.n * k; i += threads_of_grid()) {
    const int64_t row = a.rows != nullptr ? a.rows[i / k] : i / k;
    const char* const from = a.from.data + row * a.from.row_stride + i % k * a.from.column_stride;
    for (int b = 0; b < a.size; ++b) a.to[i * a.size + b] = from[b];
  }
}

extern "C" __global__ void find_infinity(const FindInfinity a) {
  const int64_t k = a.numbers.n_columns;
  for (int64_t i = thread_of_grid(); i < a.numbers.n_rows * k; i += threads_of_grid()) {
    const double x = read_number(a.numbers, i / k, static_cast<int32_t>(i % k));
    if (x == x && x - x != 0)
      atomicMin(reinterpret_cast<unsigned long long*>(a.first), static_cast<unsigned long long>(i));
  }
}
