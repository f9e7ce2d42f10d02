// What the best order of many categories gains where they say nothing (docs/design.md section 4):
// with gradients that were drawn by chance, the more categories a feature has, the more some cut of
// them explains.
//
// Owns: how much that is. Must not know: candidates, nodes.
#pragma once
#include <cstdint>
#include <vector>

#include "quantised_gradients/quantised_gradients.h"

namespace polyleaf {

// Gradients as numbers drawn by chance.
struct Chance {
  double variance = 0;  // for each unit of Hessian
  double width = 1;     // how many outputs vary; one that varies little counts for little

  // By how much the best cut of so many categories, in the order of their gradients, raises a
  // score's sum above that of a cut without a choice.
  float of_order(int64_t n_categories) const;
};

// Of all rows of a tree, those of other ranks among them.
struct ChannelSums {
  const ChannelLayout* layout;
  const int32_t* totals;
  int64_t count;
  const float* gradient_step;  // of every output
  const float* hessian_step;   // of every Hessian lane
};
// `squares`: of the gradients' channels.
Chance chance_of(const ChannelSums& sums, const std::vector<int64_t>& squares);

// Those squares over all rows, of which `sample` lie here; channels of row r lie at r * lanes.
std::vector<int64_t> sum_squares(const ChannelLayout& layout, const int16_t* channels,
                                 const RowSample& sample, const Workers& workers);

}  // namespace polyleaf
