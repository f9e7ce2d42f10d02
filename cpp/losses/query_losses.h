// Losses of rankings: gradient, Hessian and loss of the raw scores of queries, whose documents
// (rows) are ordered together. Each output learns one goal, or a weighted sum of goals.
//
// A document that a goal does not rate (weight 0) is not part of the query for this goal.
// Documents of equal score have no order: they are treated alike, whatever the order of the rows
// is. Sums over documents are exact, or in an order that follows from their values, so that results
// are the same bits for any order of the rows, any number of threads and any instruction set.
#pragma once
#include <cstdint>

#include "base/context.h"
#include "base/isa.h"

namespace polyleaf {

// Input of a loss. `rows` lists the rows of the queries one after the other: query q has those from
// begin[q] to begin[q + 1].
struct QueryInput {
  int64_t n_rows = 0;
  int64_t n_queries = 0;
  int64_t n_outputs = 0;
  int64_t n_goals = 0;
  const int32_t* rows = nullptr;   // n_rows
  const int64_t* begin = nullptr;  // n_queries + 1
  const float* raw = nullptr;      // (n_rows, n_outputs)
  const float* target = nullptr;   // (n_rows, n_goals); see the losses
  const float* weight = nullptr;   // (n_rows, weight_columns); nullptr: all 1
  int64_t weight_columns = 0;      // 1 or n_goals
  // (n_queries, n_goals): see the losses. A query with 0 has no derivatives.
  const double* scale = nullptr;
  // (n_outputs, n_goals): weights of the goals in each output; nullptr: output k learns goal k.
  const float* goal_weight = nullptr;
};

// Cross entropy of the softmax r of the scores and the distribution p, the target:
//   - sum p_i ln r_i, with gradient c r_i - p_i and Hessian c r_i (1 - r_i), c = sum p_i = `scale`.
// p contains the weights of the documents.
void listwise_derivatives(const QueryInput& input, float* g, float* h, const Context& context);

// What an exchange of two documents changes, by which their pair is weighed.
enum class PairMeasure { kNone, kNdcg, kMap };

struct PairOptions {
  PairMeasure measure = PairMeasure::kNdcg;
  // Pairs count only if the upper document is at one of these ranks.
  int64_t truncation = 0;
  // Differences of gains count at most this: 1 for gains that are numbers of levels.
  float largest_difference = 0.0f;
  // Divide the weight of a pair by kScoreMargin + |difference of scores|, and the derivatives of a
  // query by s / log2(1 + s), s the sum of the magnitudes of the gradients without weights.
  bool normalise = false;
  // Discount of each rank, and sums of the discounts of the ranks before it; as many as the largest
  // query has documents, and one more sum.
  const double* discount = nullptr;
  const double* discount_sums = nullptr;
};

// Sum over pairs of documents, i with a greater gain (the target) than j:
//   w_ij ln(1 + e^(s_j - s_i)), w_ij = `scale` weight_i |gain_i - gain_j| |change of the measure|.
// kMap takes gains of 0 and 1. The change of documents of equal score is the mean over their
// possible orders (kMap: with as many relevant documents at each of their ranks).
void pair_derivatives(const QueryInput& input, const PairOptions& options, float* g, float* h,
                      const Context& context);

struct NeighbourOptions {
  // Random orders of each query; pairs of neighbours count at so many first ranks.
  int64_t n_orders = 0, truncation = 0;
  const double* discount = nullptr;  // of each of these ranks, for the upper neighbour
  const float* noise = nullptr;      // quantiles of the noise, 2^kNoiseBits of them
};
constexpr int kNoiseBits = 12;

// As pair_derivatives, for the neighbours in orders by score plus noise:
//   w_ij = `scale` weight_i discount |target_i - target_j|, summed over the orders.
// The noise follows from the scores and targets of a query, whatever the order of its rows, so that
// it is new in each round, and the same for the same query. Documents of equal score, target and
// weight have their mean derivatives.
void neighbour_derivatives(const QueryInput& input, const NeighbourOptions& options, float* g,
                           float* h, const Context& context);

// Losses of the queries, (n_queries, n_outputs).
void neighbour_losses(const QueryInput& input, const NeighbourOptions& options, double* losses,
                      const Context& context);
void listwise_losses(const QueryInput& input, double* losses, const Context& context);
void pair_losses(const QueryInput& input, const PairOptions& options, double* losses,
                 const Context& context);

// Kernels, compiled once per instruction set.

// Documents with the same score and gain, in the order of descending scores: arrays with an entry
// for each such group.
struct DocumentGroups {
  const float* score;
  const float* gain;
  const float* count;   // number of documents
  const float* weight;  // sum of their weights
  const double* below;  // see PairRow
  // Sums over pairs, of magnitudes: `better` is to be multiplied by the weight of a document.
  double* better;
  double* worse;
  double* better_hessian;
  double* worse_hessian;
};
// The upper group of pairs: the change of the measure is above - share * below of the lower group,
// with another `above` if the lower one has the greater gain.
struct PairRow {
  int64_t group;
  double above_better, above_worse, share;
  float scale, largest_difference;
  float margin, slope;  // the weight is divided by margin + slope * difference of scores
};

struct QueryKernels {
  // out = e^(score - largest), and return their sum, exact for the values as it rounds them.
  double (*exponentials)(const float* score, float largest, float* out, int64_t n);
  // Add the pairs of group row.group with the groups from `begin` to `end`; return the sum of the
  // magnitudes of their gradients, times the numbers of documents.
  double (*add_pairs)(const PairRow& row, const DocumentGroups& groups, int64_t begin, int64_t end);
};
POLYLEAF_DECLARE_KERNELS(QueryKernels, query_kernels)

}  // namespace polyleaf
