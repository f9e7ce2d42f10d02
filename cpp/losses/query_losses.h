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

// Kernels read, and write, so many entries after the last one of their arrays. What these hold does
// not matter, but it must be finite.
constexpr int kQueryPadding = 32;

// Documents with the same score, gain and weight, in the order of descending scores: arrays with an
// entry for each such group.
struct DocumentGroups {
  int64_t n;
  const float* score;
  const float* power;  // e^(score - the largest one)
  const float* gain;
  const float* count;   // number of documents
  const float* weight;  // of one document
  const float* below;   // see PairChange
  float* gradient;      // of one document; pairs are added
  float* hessian;
};
// The change of the measure, for an upper and a lower group: above - share * below of the lower
// group, with another `above` if the lower group has the greater gain.
struct PairChange {
  float above_better, above_worse, share;
};
// Groups of equal score, up to `end`: their pairs with each other, and with those below.
struct PairRun {
  int64_t end;
  PairChange within, outside;
};
struct PairSettings {
  float scale, largest_difference;
  float margin, slope;  // the weight is divided by margin + slope * difference of scores
  // Multiply the sums by log2(1 + s) / s, s the sum of the magnitudes of the gradients without
  // weights.
  bool normalise;
};

// Added to the state of random numbers for each number.
constexpr uint64_t kNoiseStep = 0x9e3779b97f4a7c15u;

struct QueryKernels {
  // out = e^(score - largest), and return their sum, exact for the values as it rounds them.
  double (*exponentials)(const float* score, float largest, float* out, int64_t n);
  // Return ln(1 + e^x).
  float (*softplus)(float x);
  // Add the pairs whose upper group is in one of the runs.
  void (*add_pairs)(const PairSettings& settings, const DocumentGroups& groups, const PairRun* runs,
                    int64_t n_runs);
  // Rank from 0 of each score, the largest first; of equal scores, the first one is first. Takes
  // time that is quadratic in n.
  void (*find_ranks)(const float* score, int64_t n, int32_t* rank);
  // out = score + random noise; the state after them is state + n * kNoiseStep.
  void (*add_noise)(const float* score, const float* noise, uint64_t state, float* out, int64_t n);
  // Derivatives of the pairs of documents i and i + 1 for document i; those for document i + 1 are
  // the negative gradient and the same Hessian.
  void (*pair_neighbours)(const float* score, const float* target, const float* weight,
                          const double* discount, double scale, double* g, double* h, int64_t n);
};
POLYLEAF_DECLARE_KERNELS(QueryKernels, query_kernels)

}  // namespace polyleaf
