// Prediction: every row adds its leaf values tree after tree in order, as on the CPU. A block
// processes some rows: it finds their leaves in some trees, then adds their values, with
// neighbouring threads on neighbouring outputs of a row.
#include "device/kernels/block.h"

namespace polyleaf::on_device {

constexpr int kPredictedTrees = 16;  // trees whose leaves a block finds at a time

__device__ inline int32_t find_leaf(const PredictTrees& a, const DeviceTree& tree, int64_t row) {
  TreeNode node = a.nodes[tree.root];
  while (node.feature >= 0) {
    const int code = a.codes[node.feature * a.n_rows + row];
    const bool left = code == 255 ? node.missing_left != 0
                      : node.category_set >= 0
                          ? (a.sets[4 * node.category_set + (code >> 6)] >> (code & 63)) & 1
                          : code <= node.threshold;
    node = a.nodes[tree.root + (left ? node.left : node.right)];
  }
  return node.leaf;
}

}  // namespace polyleaf::on_device

using namespace polyleaf::on_device;

extern "C" __global__ void predict_trees(const PredictTrees a) {
  __shared__ int32_t leaves[kPredictedTrees][kPredictedRows];
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kPredictedRows;
  const int n_rows = static_cast<int>(a.n_rows - first_row < kPredictedRows ? a.n_rows - first_row
                                                                            : kPredictedRows);
  for (int first = 0; first < a.n_trees; first += kPredictedTrees) {
    const int n_trees = a.n_trees - first < kPredictedTrees ? a.n_trees - first : kPredictedTrees;
    __syncthreads();
    for (int i = threadIdx.x; i < n_trees * n_rows; i += blockDim.x)
      leaves[i / n_rows][i % n_rows] =
          find_leaf(a, a.trees[first + i / n_rows], first_row + i % n_rows);
    __syncthreads();
    for (int i = threadIdx.x; i < n_rows * a.n_outputs; i += blockDim.x) {
      const int r = i / a.n_outputs, k = i % a.n_outputs;
      float& raw = a.raw[(first_row + r) * a.n_outputs + k];
      float sum = raw;
      for (int t = 0; t < n_trees; ++t) {
        const DeviceTree tree = a.trees[first + t];
        const int64_t leaf = tree.values + static_cast<int64_t>(leaves[t][r]) * tree.width;
        if (tree.output < 0)
          sum += a.values[leaf + k];
        else if (tree.output == k)
          sum += a.values[leaf];
      }
      raw = sum;
    }
  }
}

extern "C" __global__ void scores_of_sums(const ScoresOfSums a) {
  for (int64_t i = thread_of_grid(); i < a.n_rows * a.n_outputs; i += threads_of_grid())
    a.scores[i] = a.unit(static_cast<int32_t>(i % a.n_outputs), a.raw[i]);
}
