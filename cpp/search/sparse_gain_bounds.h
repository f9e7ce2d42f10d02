// What splits on the sparse features of a node can be worth at most, without its cells being read:
// from what they were worth when they were last looked at, in the node or above it, and what rows
// have left since.
//
// A side of a split that has none but cells of the feature is not touched by rows that leave
// without one; the other side has nearly all rows, and is worth little. So the bounds are tight
// where trees part with few rows at a time, and few features have to be looked at again. They hold
// for scores whose terms are g^2 / (h + lambda):
//
//   cells' side   |g|^2 / (h + lambda) <= own,  |g| <= norm,  h <= weight
//   other side    |T - g|^2 / (H - h + lambda) <= (|T| + norm)^2 / (H - weight + lambda)
//
// and a side of which rows leave whose gradients have norms of d and Hessian of e together, x +
// lambda being the least that a side can have, has sqrt(own') <= sqrt(own (1 + e / (x + lambda))) +
// d / sqrt(x + lambda).
//
// Owns: those bounds. Must not know: which splits there are, rows, cells.
#pragma once
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/isa.h"
#include "split_gain/score_kernels.h"

namespace polyleaf {

// What is known of features: `own` +inf, nothing; -inf, there is no split, nor will there be one
// below.
struct CellBoundColumns {
  const float *own, *norm, *weight;
};
// A node, and what splits are to be worth there; with lambda in `least`.
struct CellBoundLimit {
  float norm, least, least_rest, margin, floor;
};
struct CellBoundKernels {
  // Writes those of the features first .. last - 1 that a split on may be worth the floor; returns
  // how many.
  int64_t (*reach)(const CellBoundColumns& columns, int64_t first, int64_t last,
                   const CellBoundLimit& limit, int32_t* out);
};
POLYLEAF_DECLARE_KERNELS(CellBoundKernels, cell_bound_kernels)

class CellBounds {
 public:
  // Whether bounds hold for what a node is judged by.
  static bool hold_for(const ScanNode& node);

  // Nothing is known of any of n features.
  void start(int64_t n);

  // A node's sums, as bounds need them.
  struct NodeSums {
    double norm;         // of its gradients' sum
    double least, most;  // Hessian of an output, with lambda
    double least_side;   // Hessian that a side of a split has at least, with lambda
    double lambda;
    double margin;  // what rounding may add, in proportion
  };
  static NodeSums sums_of(const ScanNode& node);

  // What the best split on a feature is worth (-inf: there is none), and the Hessian of its
  // cells.
  void found(int64_t number, float sum, double weight, const NodeSums& node);
  // Writes those of the features first .. last - 1 that a split on may be worth the floor, in the
  // node; returns how many.
  int64_t reach(int64_t first, int64_t last, const NodeSums& node, float floor, int32_t* out) const;

  // A row with a cell of the feature leaves: the norm of its gradients, and its largest Hessian.
  struct RowSums {
    double norm, weight;
  };
  static RowSums row_of(const ScanNode& node, const int16_t* channels);
  void leave(int64_t number, const RowSums& row) {
    Since& since = since_[number];
    if (!since.waits) waiting_.push_back(static_cast<int32_t>(number));
    since.waits = true;
    since.norm += row.norm;
    since.weight += row.weight;
  }
  // All rows have left that go with one split.
  void renew(const NodeSums& node);

 private:
  void set(int64_t number, double own, const NodeSums& node);

  struct Since {
    double own = 0, norm = 0,
           weight = 0;   // what `own` was when it was found, and what has left since
    bool waits = false;  // to be renewed
  };
  Buffer<float> own_, norm_, weight_;
  std::vector<Since> since_;
  std::vector<int32_t> waiting_;
};

}  // namespace polyleaf
