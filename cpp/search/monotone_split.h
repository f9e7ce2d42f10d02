// Splits of trees whose values must obey directions: as what a split is judged, and what its
// children inherit.
//
// Must not know: how splits are found.
#pragma once
#include "data/bins.h"
#include "search/dense_scan.h"
#include "split_gain/score_kernels.h"

namespace polyleaf {

// Throws std::invalid_argument where directions are not for such leaves, or of other outputs.
void check_directions(const MonotoneConstraints& directions, const ChannelLayout& layout,
                      const SplitConfig& split);

// The node where candidates split like this one. Missing values apart from all others are free of
// directions.
ScanNode split_like(const ScanNode& node, const Bins& bins, const TileSplit& split);

// Bounds of the children, of a node where candidates split like this one: where an output of both
// has one value, what is below them keeps to their order.
void bound_children(const ScanNode& node, const TileSplit& split, OutputBounds& left,
                    OutputBounds& right);

}  // namespace polyleaf
