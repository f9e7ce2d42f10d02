// Upper bounds on the gain of splits on the sparse features of a node, without reading its
// nonzeros: from the score when a feature was last scanned, in the node or above it, and from the
// rows that have been removed since.
//
// The side of a split that has only nonzeros of the feature is not changed by rows without one; the
// other side has nearly all rows, and gains little. So bounds are tight where splits move few rows
// at a time, and few features have to be scanned again. They hold for scores whose terms are g^2 /
// (h + lambda):
//
//   nonzeros |g|^2 / (h + lambda) <= gain, |g| <= norm, h <= hessian
//   other side |T - g|^2 / (H - h + lambda) <= (|T| + norm)^2 / (H - hessian + lambda)
//
// If rows are removed from a side whose gradients have norms of d and Hessians of e in total, and x
// + lambda is a lower bound of the Hessian of a side, then sqrt(gain') <= sqrt(gain (1 + e / (x +
// lambda))) + d / sqrt(x + lambda).
#pragma once
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/isa.h"
#include "split_gain/score_kernels.h"

namespace polyleaf {

// Bounds of features: `gain` +inf, not known; -inf, there is no split, here or below.
struct SparseGainColumns {
  const float *gain, *norm, *hessian;
};
// Sums of a node with the score that splits must exceed; `min_hessian` includes lambda.
struct SparseGainLimit {
  float norm, min_hessian, min_rest, margin, best_so_far;
};
struct SparseGainKernels {
  // Write those of the features first .. last - 1 whose bound is not below best_so_far; return how
  // many.
  int64_t (*select_candidates)(const SparseGainColumns& columns, int64_t first, int64_t last,
                               const SparseGainLimit& limit, int32_t* out);
};
POLYLEAF_DECLARE_KERNELS(SparseGainKernels, sparse_gain_kernels)

class SparseGainBounds {
 public:
  // Return whether bounds hold for the score of a node.
  static bool are_valid(const ScanNode& node);

  // Reset to n features without bounds.
  void reset(int64_t n);

  // Sums of a node.
  struct NodeSums {
    double norm;                      // of the sum of gradients
    double min_hessian, max_hessian;  // of an output, with lambda
    double min_side;                  // lower bound of the Hessian of a side, with lambda
    double lambda;
    double margin;  // relative rounding error
  };
  static NodeSums sum_node(const ScanNode& node);

  // Set the score of the best split on a feature (-inf: none), and the Hessian of its nonzeros.
  void set_gain(int64_t number, float sum, double weight, const NodeSums& node);
  // Write those of the features first .. last - 1 whose bound in the node is not below best_so_far;
  // return how many.
  int64_t select_candidates(int64_t first, int64_t last, const NodeSums& node, float best_so_far,
                            int32_t* out) const;

  // Remove a row with a nonzero of the feature: the norm of its gradients, and its largest Hessian.
  struct RowSums {
    double norm, weight;
  };
  static RowSums sum_row(const ScanNode& node, const int16_t* channels);
  void remove_row(int64_t number, const RowSums& row) {
    Removed& removed = removed_[number];
    if (!removed.is_pending) pending_.push_back(static_cast<int32_t>(number));
    removed.is_pending = true;
    removed.norm += row.norm;
    removed.weight += row.weight;
  }
  // Update the bounds after all rows of one split were removed.
  void update(const NodeSums& node);

 private:
  void set(int64_t number, double gain, const NodeSums& node);

  struct Removed {
    double gain = 0, norm = 0,
           weight = 0;        // `gain` at the last scan, and what was removed since
    bool is_pending = false;  // bound is out of date
  };
  Buffer<float> gain_, norm_, hessian_;
  std::vector<Removed> removed_;
  std::vector<int32_t> pending_;
};

}  // namespace polyleaf
