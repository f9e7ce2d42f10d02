// Row partition: stable partition of row ids, and the leaf of every row.
#include "device/kernels/block.h"

namespace polyleaf::on_device {

__device__ inline int64_t id_at(const uint32_t* ids, int64_t i) {
  return ids != nullptr ? static_cast<int64_t>(ids[i]) : i;
}

__device__ inline bool is_in(const uint64_t* set, int code) {
  return (set[code >> 6] >> (code & 63)) & 1;
}

__device__ inline bool goes_left(const DeviceRowIds& rows, const DevicePartitionRequest& d,
                                 int64_t i) {
  const int64_t row = id_at(rows.ids[d.from], i);
  const int code = static_cast<int>(rows.words[d.tile * rows.n_rows + row] >> d.shift & 255);
  if (code == d.missing) return d.missing_left != 0;
  return d.is_set ? is_in(d.set, code) : code <= d.threshold;
}

// Rows first .. last - 1 of a piece belong to the thread; they are contiguous, so their order is
// kept.
struct OwnRows {
  int64_t first, last;
  __device__ explicit OwnRows(const RowPiece& piece) {
    const int64_t each = (piece.end - piece.begin + blockDim.x - 1) / blockDim.x;
    first = piece.begin + threadIdx.x * each;
    last = first + each < piece.end ? first + each : piece.end;
  }
};

}  // namespace polyleaf::on_device

using namespace polyleaf::on_device;

extern "C" __global__ void count_left(const CountLeft a) {
  POLYLEAF_SHARED_MEMORY(int32_t, n_left);
  const RowPiece piece = a.pieces[blockIdx.x];
  const DevicePartitionRequest& request = a.requests[piece.request];
  if (threadIdx.x == 0) *n_left = 0;
  __syncthreads();
  int32_t own = 0;
  for (int64_t i = piece.begin + threadIdx.x; i < piece.end; i += blockDim.x)
    own += goes_left(a.rows, request, i) ? 1 : 0;
  atomicAdd(n_left, own);
  __syncthreads();
  if (threadIdx.x == 0) a.n_left[blockIdx.x] = *n_left;
}

extern "C" __global__ void place_pieces(const PlacePieces a) {
  POLYLEAF_SHARED_MEMORY(int32_t, sums);
  const DevicePartitionRequest& request = a.requests[blockIdx.x];
  const int n = request.last_piece - request.first_piece, t = threadIdx.x;
  const int each = (n + blockDim.x - 1) / blockDim.x;
  int32_t* const first = a.n_left + request.first_piece;
  int32_t sum = 0;
  for (int i = t * each; i < (t + 1) * each && i < n; ++i) sum += first[i];
  sums[t] = sum;
  running_sums(sums);
  int32_t before = sums[t] - sum;
  for (int i = t * each; i < (t + 1) * each && i < n; ++i) {
    const int32_t own = first[i];
    first[i] = before;
    before += own;
  }
}

extern "C" __global__ void move_rows(const MoveRows a) {
  POLYLEAF_SHARED_MEMORY(int32_t, sums);
  const RowPiece piece = a.pieces[blockIdx.x];
  const DevicePartitionRequest& request = a.requests[piece.request];
  const OwnRows own(piece);
  int32_t n_left = 0;
  for (int64_t i = own.first; i < own.last; ++i) n_left += goes_left(a.rows, request, i) ? 1 : 0;
  sums[threadIdx.x] = n_left;
  running_sums(sums);
  const int64_t left_before = a.left_before[blockIdx.x] + sums[threadIdx.x] - n_left;
  uint32_t* left = a.rows.ids[request.to] + request.left_to + left_before;
  uint32_t* right =
      a.rows.ids[request.to] + request.right_to + (own.first - request.begin - left_before);
  for (int64_t i = own.first; i < own.last; ++i) {
    const auto row = static_cast<uint32_t>(id_at(a.rows.ids[request.from], i));
    *(goes_left(a.rows, request, i) ? left++ : right++) = row;
  }
}

extern "C" __global__ void assign_leaf_ids(const AssignLeafIds a) {
  const LeafPiece piece = a.pieces[blockIdx.x];
  for (int64_t i = piece.begin + threadIdx.x; i < piece.end; i += blockDim.x)
    a.leaf_of_row[id_at(a.ids[piece.copy], i)] = piece.leaf;
}

extern "C" __global__ void route_rows(const RouteRows a) {
  for (int64_t row = thread_of_grid(); row < a.n_rows; row += threads_of_grid()) {
    TreeNode node = a.nodes[0];
    while (node.feature >= 0) {
      const int tile = a.place[node.feature] / 8, slot = a.place[node.feature] % 8;
      const int code = static_cast<int>(a.words[tile * a.n_rows + row] >> (8 * slot) & 255);
      const bool is_missing = code == (1 << a.tiles[tile].log2_stride) - 1;
      const bool left = is_missing               ? node.missing_left != 0
                        : node.category_set >= 0 ? is_in(a.sets + 4 * node.category_set, code)
                                                 : code <= node.threshold;
      node = a.nodes[left ? node.left : node.right];
    }
    a.leaf_of_row[row] = node.leaf;
  }
}
