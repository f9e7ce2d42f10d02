// What the best order of many categories gains where they say nothing (docs/design.md section 4): with
// gradients that were drawn by chance, the more categories a feature has, the more some cut of them explains.
//
// Owns: how much that is. Must not know: candidates, nodes.
#pragma once
#include <cstdint>

#include "channels/channels.h"

namespace polyleaf {

// Gradients as numbers drawn by chance.
struct Chance {
  double variance = 0;  // for each unit of curvature
  double width = 1;     // how many outputs vary; one that varies little counts for little

  // By how much the best cut of so many categories, in the order of their gradients, raises a score's sum
  // above that of a cut without a choice.
  float of_order(int64_t n_categories) const;
};

// Of the rows of a tree, those of other ranks among them.
struct ChannelRows {
  const ChannelLayout* layout;
  const int16_t* channels;      // of row r of the sample's at r * lanes
  RowSample sample;             // those that lie here
  const int32_t* totals;        // sums of all rows
  int64_t count;                // of all rows
  const float* gradient_step;   // of every output
  const float* curvature_step;  // of every curvature lane
};
Chance chance_of(const ChannelRows& rows, const Workers& workers);

}  // namespace polyleaf
