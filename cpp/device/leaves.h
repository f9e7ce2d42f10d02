// Leaf values from derivatives in GPU memory, and their addition to raw scores there; bitwise equal
// to newton.h, topk.h and add_leaf_values (leaf_block.h).
#pragma once
#include <cstdint>

#include "base/settings.h"
#include "device/quantised_gradients.h"
#include "device/row_partitioner.h"
#include "leaves/leaf_kind.h"
#include "leaves/topk.h"

namespace polyleaf {

class DeviceLeaves {
 public:
  explicit DeviceLeaves(const std::shared_ptr<const Device>& device);

  // Fit Newton leaves, out (n_leaves, K). h: 1 or K columns; nullptr: Hessian 1.
  void newton(const DeviceMatrix& g, const DeviceMatrix* h, const RowSample& sample,
              const DeviceRowPartitioner& rows, int32_t n_leaves, const LeafConfig& config,
              float* out);

  // Sum each column of h by leaf; nullptr: 1 per row.
  std::vector<double> sum_hessians(const DeviceMatrix* h, const RowSample& sample,
                                   const DeviceRowPartitioner& rows, int32_t n_leaves);

  // Fit leaves with leaf_k outputs, like topk.h.
  TopkLeafArrays topk(const DeviceMatrix& g, const DeviceMatrix* h, const RowSample& sample,
                      const DeviceRowPartitioner& rows, int32_t n_leaves, const LeafConfig& config,
                      int32_t leaf_k, const Tree* shared);

  // Add leaf values to raw; output >= 0: a single column, added to that output. Throws
  // std::invalid_argument for linear leaves.
  void add(const DeviceMatrix& raw, const DeviceRowPartitioner& rows, const LeafView& leaves,
           int32_t n_leaves, int32_t output);

 private:
  // Summed gradients and Hessians of the leaves, the latter in `h_columns` columns.
  struct Sums {
    std::vector<double> G, H;
    int n_outputs, h_columns;
  };
  Sums derivatives(const DeviceMatrix& g, const DeviceMatrix* h, const RowSample& sample,
                   const DeviceRowPartitioner& rows, int32_t n_leaves);
  std::vector<double> sum_hessian_columns(const DeviceMatrix* h, const DeviceRowPartitioner& rows,
                                          int32_t n_leaves);
  void add_sparse(const DeviceMatrix& raw, const DeviceRowPartitioner& rows, const LeafView& leaves,
                  int32_t n_leaves);
  std::vector<double> sum_matrix(const DeviceMatrix& matrix, const DeviceRowPartitioner& rows,
                                 int32_t n_leaves);
  std::vector<double> sums(const float* values, int n_columns, const std::vector<float>& largest,
                           const DeviceRowPartitioner& rows, int32_t n_leaves);

  const std::shared_ptr<const Device> device_;
  DeviceSample sample_;
  DeviceBuffer<float> scale_, values_;
  DeviceBuffer<int64_t> sums_, begin_;
  DeviceBuffer<int32_t> outputs_;
};

}  // namespace polyleaf
