#include "losses/query_losses.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/context.h"
#include "base/elementary_functions.h"
#include "base/parallel.h"
#include "losses/loss_params.h"

namespace polyleaf {
namespace {

// Added to differences of scores, so that equal scores do not divide by 0.
constexpr float kScoreMargin = 0.01f;

// Up to so many documents, ranks are counted, since this is faster than to sort them.
constexpr int64_t kCountedRanks = 256;

void check_input(const QueryInput& input) {
  if (input.n_goals < 1 || input.n_outputs < 1)
    throw std::invalid_argument("A ranking needs at least one goal and one output.");
  if (input.goal_weight == nullptr && input.n_goals != input.n_outputs)
    throw std::invalid_argument("Without weights of goals, there is one output for each goal.");
  if (input.weight != nullptr && input.weight_columns != 1 && input.weight_columns != input.n_goals)
    throw std::invalid_argument("weight must have one column, or one per goal.");
  if (input.begin[0] != 0 || input.begin[input.n_queries] != input.n_rows)
    throw std::invalid_argument("The queries must contain all rows.");
  for (int64_t q = 0; q < input.n_queries; ++q)
    if (input.begin[q] > input.begin[q + 1])
      throw std::invalid_argument("The queries must begin in ascending order.");
  for (int64_t i = 0; i < input.n_rows; ++i)
    if (input.rows[i] < 0 || input.rows[i] >= input.n_rows)
      throw std::invalid_argument("A row of a query does not exist.");
}

int64_t largest_query(const QueryInput& input) {
  int64_t n = 0;
  for (int64_t q = 0; q < input.n_queries; ++q)
    n = std::max(n, input.begin[q + 1] - input.begin[q]);
  return n;
}

// Numbers whose order is that of the floats, for floats that are not NaN; 0 and -0 are equal.
uint32_t order_bits(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

float from_order_bits(uint32_t bits) {
  return __builtin_bit_cast(float, bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

// The documents of one query, as one output scores and one goal judges them.
struct Documents {
  int64_t n = 0;
  float* score;
  float* target;
  float* weight;  // not 0
  float* g;       // results, of all documents of the query by `position`
  float* h;
  int32_t* position;  // in the query
};

// Memory of one thread: arrays with an entry for each document of a query.
class Scratch {
 public:
  explicit Scratch(int64_t n)
      : n_(n + kQueryPadding),
        floats_(static_cast<size_t>(n_ * kFloats)),
        doubles_(static_cast<size_t>(n_ * kDoubles)),
        integers_(static_cast<size_t>(n_ * kIntegers)),
        keys_(static_cast<size_t>(n_)),
        ties_(static_cast<size_t>(n_)),
        runs_(static_cast<size_t>(n_)) {}

  enum {
    kScore,
    kTarget,
    kWeight,
    kG,
    kH,
    kAll,
    kSumG,
    kSumH,
    kPower,
    kCount,
    kBelow,
    kNoisy,
    kFloats
  };
  enum { kGradient, kHessian, kPairG, kPairH, kDiscount, kDoubles };
  // documents by descending score; the group of each; working memory
  enum { kPosition, kSorted, kGroup, kRank, kOrder, kCandidates, kIntegers };
  float* floats(int i) { return floats_.data() + i * n_; }
  double* doubles(int i) { return doubles_.data() + i * n_; }
  int32_t* integers(int i) { return integers_.data() + i * n_; }
  uint64_t* keys() { return keys_.data(); }
  struct Tie {
    uint64_t key;
    int32_t position;
  };
  Tie* ties() { return ties_.data(); }
  PairRun* runs() { return runs_.data(); }

 private:
  int64_t n_;
  std::vector<float> floats_;
  std::vector<double> doubles_;
  std::vector<int32_t> integers_;
  std::vector<uint64_t> keys_;
  std::vector<Tie> ties_;
  std::vector<PairRun> runs_;
};

// Weight of document i of a query for a goal.
float read_weight(const QueryInput& input, int64_t row, int64_t goal) {
  if (input.weight == nullptr) return 1.0f;
  return input.weight[row * input.weight_columns + (input.weight_columns == 1 ? 0 : goal)];
}

// Find the first `n_first` of n documents, or more, in the order of descending scores; of equal
// ones, the first document is first.
void find_order(const float* score, int64_t n, int64_t n_first, Scratch& scratch, int32_t* order) {
  if (n <= kCountedRanks) {
    int32_t* rank = scratch.integers(Scratch::kRank);
    POLYLEAF_SELECT(query_kernels).find_ranks(score, n, rank);
    for (int64_t i = 0; i < n; ++i) order[rank[i]] = static_cast<int32_t>(i);
    return;
  }
  uint64_t* keys = scratch.keys();
  for (int64_t i = 0; i < n; ++i)
    keys[i] = static_cast<uint64_t>(~order_bits(score[i])) << 32 | static_cast<uint64_t>(i);
  n_first = std::min(n_first, n);
  if (n_first < n)
    std::partial_sort(keys, keys + n_first, keys + n);
  else
    std::sort(keys, keys + n);
  for (int64_t i = 0; i < n_first; ++i) order[i] = static_cast<int32_t>(keys[i]);
}

// Call f(query, output, goal, documents, thread) for the rated documents of every query that has a
// scale, in the order of the goals. `sorts`: with the documents by descending score.
template <class F, class G>
void visit_documents(const QueryInput& input, bool sorts, const Context& context, F&& f,
                     G&& finish) {
  check_input(input);
  const int64_t longest = largest_query(input);
  std::vector<Scratch> scratches;
  for (int thread = 0; thread < context.n_threads; ++thread) scratches.emplace_back(longest);
  parallel_for(context, input.n_queries, [&](int64_t query, int thread) {
    Scratch& scratch = scratches[static_cast<size_t>(thread)];
    const int32_t* rows = input.rows + input.begin[query];
    const int64_t n = input.begin[query + 1] - input.begin[query];
    for (int64_t output = 0; output < input.n_outputs; ++output) {
      float* all = scratch.floats(Scratch::kAll);
      const int32_t* sorted = scratch.integers(Scratch::kSorted);
      for (int64_t i = 0; i < n; ++i) all[i] = input.raw[rows[i] * input.n_outputs + output];
      if (sorts) find_order(all, n, n, scratch, scratch.integers(Scratch::kSorted));
      std::fill_n(scratch.floats(Scratch::kSumG), n, 0.0f);
      std::fill_n(scratch.floats(Scratch::kSumH), n, 0.0f);
      for (int64_t goal = 0; goal < input.n_goals; ++goal) {
        float factor = output == goal ? 1.0f : 0.0f;
        if (input.goal_weight != nullptr) factor = input.goal_weight[output * input.n_goals + goal];
        const double scale = input.scale[query * input.n_goals + goal];
        if (factor == 0.0f || scale == 0.0) continue;
        Documents documents{0,
                            scratch.floats(Scratch::kScore),
                            scratch.floats(Scratch::kTarget),
                            scratch.floats(Scratch::kWeight),
                            scratch.floats(Scratch::kG),
                            scratch.floats(Scratch::kH),
                            scratch.integers(Scratch::kPosition)};
        for (int64_t at = 0; at < n; ++at) {
          const int32_t i = sorts ? sorted[at] : static_cast<int32_t>(at);
          const float weight = read_weight(input, rows[i], goal);
          if (weight == 0.0f) continue;
          documents.score[documents.n] = all[i];
          documents.target[documents.n] = input.target[rows[i] * input.n_goals + goal];
          documents.weight[documents.n] = weight;
          documents.position[documents.n++] = i;
        }
        f(query, output, factor, scale, documents, scratch);
      }
      finish(query, output, rows, n, scratch);
    }
  });
}

// As visit_documents; `f(scale, documents, scratch)` writes the derivatives of the documents.
template <class F>
void compute_derivatives(const QueryInput& input, bool sorts, float* g, float* h,
                         const Context& context, F&& f) {
  visit_documents(
      input, sorts, context,
      [&](int64_t, int64_t, float factor, double scale, Documents& documents, Scratch& scratch) {
        f(scale, documents, scratch);
        float* sum_g = scratch.floats(Scratch::kSumG);
        float* sum_h = scratch.floats(Scratch::kSumH);
        for (int64_t i = 0; i < documents.n; ++i) {
          sum_g[documents.position[i]] += factor * documents.g[i];
          sum_h[documents.position[i]] += factor * documents.h[i];
        }
      },
      [&](int64_t, int64_t output, const int32_t* rows, int64_t n, Scratch& scratch) {
        for (int64_t i = 0; i < n; ++i) {
          g[rows[i] * input.n_outputs + output] = scratch.floats(Scratch::kSumG)[i];
          h[rows[i] * input.n_outputs + output] = scratch.floats(Scratch::kSumH)[i];
        }
      });
}

// Return the sum of numbers in an order that depends on their values only.
double sum_sorted(std::vector<double>& terms) {
  std::sort(terms.begin(), terms.end());
  double sum = 0.0;
  for (const double term : terms) sum += term;
  return sum;
}

// As visit_documents; `f(scale, documents, scratch, terms)` adds the terms of the loss of one goal.
template <class F>
void compute_losses(const QueryInput& input, bool sorts, double* losses, const Context& context,
                    F&& f) {
  std::fill_n(losses, input.n_queries * input.n_outputs, 0.0);
  visit_documents(
      input, sorts, context,
      [&](int64_t query, int64_t output, float factor, double scale, Documents& documents,
          Scratch& scratch) {
        std::vector<double> terms;
        f(scale, documents, scratch, terms);
        losses[query * input.n_outputs + output] += factor * sum_sorted(terms);
      },
      [](int64_t, int64_t, const int32_t*, int64_t, Scratch&) {});
}

// Return e^(score - largest) of the documents, in documents.g, and their sum.
double compute_exponentials(const Documents& documents, float& largest) {
  largest = *std::max_element(documents.score, documents.score + documents.n);
  return POLYLEAF_SELECT(query_kernels)
      .exponentials(documents.score, largest, documents.g, documents.n);
}

// --- pairs ---

// The change of a measure if a document of a run of equal scores and a document below it are
// exchanged is above - share * below, means over the ranks of both runs.
struct Run {
  double above_better, above_worse, share, below, within;
};

// Ranks from 0: the run has those from `begin` to `end`.
Run discount_run(const PairOptions& options, int64_t begin, int64_t end) {
  const double* sums = options.discount_sums;
  if (end - begin == 1) {  // as below, without divisions
    const double discount = sums[end] - sums[begin];
    if (begin >= options.truncation) return {0.0, 0.0, 0.0, discount, 0.0};
    return {discount, discount, 1.0, discount, 0.0};
  }
  const double n = static_cast<double>(end - begin);
  const int64_t inside = std::min(end, std::max(begin, options.truncation));
  Run run;
  run.above_better = run.above_worse = (sums[inside] - sums[begin]) / n;
  run.share = static_cast<double>(inside - begin) / n;
  run.below = (sums[end] - sums[begin]) / n;
  run.within = 0.0;
  for (int64_t rank = begin; rank < std::min(inside, end - 1); ++rank)
    run.within +=
        options.discount[rank] * static_cast<double>(end - 1 - rank) - (sums[end] - sums[rank + 1]);
  run.within /= 0.5 * n * (n - 1.0);
  return run;
}

// Sums of the ranks above a run: relevant documents, and these divided by their ranks.
struct RanksAbove {
  double relevant = 0.0, divided = 0.0;
};

// As discount_run, for average precision times the number of relevant documents. `n_relevant` of
// the run's documents are relevant.
Run precision_run(const PairOptions& options, int64_t begin, int64_t end, double n_relevant,
                  RanksAbove& above) {
  const double n = static_cast<double>(end - begin), density = n_relevant / n;
  const int64_t inside = std::min(end, std::max(begin, options.truncation));
  Run run = {};
  double relevant = above.relevant, divided = above.divided, below = 0.0;
  // sum over pairs of the run: the change is (upper terms) - (lower term)
  double upper = 0.0, lower = 0.0;
  for (int64_t rank = begin; rank < end; ++rank) {
    const double number = static_cast<double>(rank + 1);
    const double lower_term = (relevant + density) / number - divided;
    below += lower_term;
    // ranks above this one, in the run, at which pairs begin
    lower += lower_term * static_cast<double>(std::min(rank, inside) - begin);
    relevant += density;
    divided += density / number;
    if (rank >= inside) continue;
    const double better = relevant / number - divided, worse = (relevant + 1.0) / number - divided;
    run.above_better += better;
    run.above_worse += worse;
    upper += 0.5 * (better + worse) * static_cast<double>(end - 1 - rank);
  }
  above = {relevant, divided};
  run.above_better /= n;
  run.above_worse /= n;
  run.share = static_cast<double>(inside - begin) / n;
  run.below = below / n;
  if (end - begin > 1) run.within = (upper - lower) / (0.5 * n * (n - 1.0));
  return run;
}

// Sort documents of equal score by descending gain and weight, so that sums over them have one
// order.
void sort_ties(Documents& documents, Scratch& scratch) {
  for (int64_t begin = 0, end; begin < documents.n; begin = end) {
    for (end = begin + 1; end < documents.n && documents.score[end] == documents.score[begin];)
      ++end;
    if (end - begin == 1) continue;
    Scratch::Tie* ties = scratch.ties();
    for (int64_t i = begin; i < end; ++i)
      ties[i] = {static_cast<uint64_t>(~order_bits(documents.target[i])) << 32 |
                     ~order_bits(documents.weight[i]),
                 documents.position[i]};
    std::sort(ties + begin, ties + end,
              [](const Scratch::Tie& a, const Scratch::Tie& b) { return a.key < b.key; });
    for (int64_t i = begin; i < end; ++i) {
      documents.target[i] = from_order_bits(~static_cast<uint32_t>(ties[i].key >> 32));
      documents.weight[i] = from_order_bits(~static_cast<uint32_t>(ties[i].key));
      documents.position[i] = ties[i].position;
    }
  }
}

// Pairs of the documents of a query: groups of equal score, gain and weight, and runs of equal
// score.
class Pairs {
 public:
  // The documents become the groups.
  Pairs(const PairOptions& options, double scale, Documents& documents, Scratch& scratch)
      : scratch_(scratch), n_documents_(documents.n) {
    sort_ties(documents, scratch);
    make_groups(options, documents);
    settings_.scale = static_cast<float>(scale);
    settings_.largest_difference = options.largest_difference;
    const bool normalises = options.normalise && n_runs_ > 1;
    settings_.margin = normalises ? kScoreMargin : 1.0f;
    settings_.slope = normalises ? 1.0f : 0.0f;
    settings_.normalise = options.normalise;
  }

  int64_t n_documents() const { return n_documents_; }
  int32_t group(int64_t document) const { return scratch_.integers(Scratch::kGroup)[document]; }
  const PairSettings& settings() const { return settings_; }
  std::span<const PairRun> upper_runs() const {
    return {scratch_.runs(), static_cast<size_t>(n_upper_runs_)};
  }

  DocumentGroups groups() const {
    return {n_groups_,
            scratch_.floats(Scratch::kScore),
            scratch_.floats(Scratch::kPower),
            scratch_.floats(Scratch::kTarget),
            scratch_.floats(Scratch::kCount),
            scratch_.floats(Scratch::kWeight),
            scratch_.floats(Scratch::kBelow),
            scratch_.floats(Scratch::kG),
            scratch_.floats(Scratch::kH)};
  }

 private:
  void make_groups(const PairOptions& options, Documents& documents) {
    float* count = scratch_.floats(Scratch::kCount);
    float* below = scratch_.floats(Scratch::kBelow);
    int32_t* group = scratch_.integers(Scratch::kGroup);
    RanksAbove above;
    for (int64_t begin = 0, end; begin < documents.n; begin = end) {
      const int64_t first_group = n_groups_;
      const float score = documents.score[begin];
      double n_relevant = 0.0;
      for (end = begin; end < documents.n && documents.score[end] == score;) {
        const int64_t first = end;
        const float gain = documents.target[first], weight = documents.weight[first];
        for (; end < documents.n && documents.score[end] == score &&
               documents.target[end] == gain && documents.weight[end] == weight;
             ++end)
          group[end] = static_cast<int32_t>(n_groups_);
        count[n_groups_] = static_cast<float>(end - first);
        if (gain > 0.0f) n_relevant += static_cast<double>(end - first);
        documents.score[n_groups_] = score;
        documents.target[n_groups_] = gain;
        documents.weight[n_groups_] = weight;
        ++n_groups_;
      }
      Run run{1.0, 1.0, 0.0, 0.0, 1.0};
      if (options.measure == PairMeasure::kNdcg) run = discount_run(options, begin, end);
      if (options.measure == PairMeasure::kMap)
        run = precision_run(options, begin, end, n_relevant, above);
      std::fill(below + first_group, below + n_groups_, static_cast<float>(run.below));
      const float within = static_cast<float>(run.within);
      scratch_.runs()[n_runs_++] = {
          n_groups_,
          {within, within, 0.0f},
          {static_cast<float>(run.above_better), static_cast<float>(run.above_worse),
           static_cast<float>(run.share)}};
      if (begin < options.truncation) n_upper_runs_ = n_runs_;
    }
    documents.n = n_groups_;
  }

  Scratch& scratch_;
  PairSettings settings_;
  int64_t n_documents_, n_groups_ = 0, n_runs_ = 0, n_upper_runs_ = 0;
};

// --- neighbours in random orders ---

// How many documents more than are needed the threshold of a random order leaves, so that seldom
// too few remain.
constexpr int64_t kMoreCandidates = 16;

// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Call f(first ranks of a random order, number of pairs) for the orders.
template <class F>
void visit_orders(const NeighbourOptions& options, Documents& documents, Scratch& scratch, F&& f) {
  sort_ties(documents, scratch);
  uint64_t state = static_cast<uint64_t>(documents.n);
  for (int64_t i = 0; i < documents.n; ++i)
    state = mix(state ^ (static_cast<uint64_t>(order_bits(documents.score[i])) << 32 |
                         order_bits(documents.target[i])));
  const int64_t n = documents.n, n_pairs = std::min(n - 1, options.truncation);
  float* noisy = scratch.floats(Scratch::kNoisy);
  int32_t* order = scratch.integers(Scratch::kOrder);
  int32_t* candidates = scratch.integers(Scratch::kCandidates);
  constexpr float kAll = -std::numeric_limits<float>::infinity();
  float threshold = kAll;
  for (int64_t number = 0; number < options.n_orders; ++number) {
    POLYLEAF_SELECT(query_kernels).add_noise(documents.score, options.noise, state, noisy, n);
    state += static_cast<uint64_t>(n) * kNoiseStep;
    // Few documents are above the threshold of another order, and the first ranks are among them.
    int64_t n_candidates = 0;
    for (int64_t i = 0; i < n; ++i) {
      candidates[n_candidates] = static_cast<int32_t>(i);
      n_candidates += noisy[i] >= threshold;
    }
    if (n_candidates > n_pairs && n_candidates < n) {
      for (int64_t i = 0; i < n_candidates; ++i) noisy[i] = noisy[candidates[i]];
      find_order(noisy, n_candidates, n_pairs + 1, scratch, order);
      for (int64_t rank = 0; rank <= n_pairs; ++rank) order[rank] = candidates[order[rank]];
    } else {
      const int64_t n_first = n_pairs + kMoreCandidates;
      find_order(noisy, n, n_first, scratch, order);
      threshold = n_first < n ? noisy[order[n_first - 1]] : kAll;
    }
    f(order, n_pairs);
  }
}

}  // namespace

void neighbour_derivatives(const QueryInput& input, const NeighbourOptions& options, float* g,
                           float* h, const Context& context) {
  const QueryKernels& kernels = POLYLEAF_SELECT(query_kernels);
  compute_derivatives(
      input, true, g, h, context, [&](double scale, Documents& documents, Scratch& scratch) {
        double* gradient = scratch.doubles(Scratch::kGradient);
        double* hessian = scratch.doubles(Scratch::kHessian);
        double* pair_g = scratch.doubles(Scratch::kPairG);
        double* pair_h = scratch.doubles(Scratch::kPairH);
        double* discount = scratch.doubles(Scratch::kDiscount);
        float* score = scratch.floats(Scratch::kPower);
        float* target = documents.g;
        float* weight = documents.h;
        std::fill_n(gradient, documents.n, 0.0);
        std::fill_n(hessian, documents.n, 0.0);
        std::copy_n(options.discount, std::min(documents.n, options.truncation), discount);
        visit_orders(options, documents, scratch, [&](const int32_t* order, int64_t n_pairs) {
          for (int64_t rank = 0; rank <= n_pairs; ++rank) {
            score[rank] = documents.score[order[rank]];
            target[rank] = documents.target[order[rank]];
            weight[rank] = documents.weight[order[rank]];
          }
          kernels.pair_neighbours(score, target, weight, discount, scale, pair_g, pair_h, n_pairs);
          double above_g = 0.0, above_h = 0.0;
          pair_g[n_pairs] = pair_h[n_pairs] = 0.0;
          for (int64_t rank = 0; rank <= n_pairs; ++rank) {
            const int32_t i = order[rank];
            gradient[i] = (gradient[i] - above_g) + pair_g[rank];
            hessian[i] = (hessian[i] + above_h) + pair_h[rank];
            above_g = pair_g[rank];
            above_h = pair_h[rank];
          }
        });
        for (int64_t begin = 0, end; begin < documents.n; begin = end) {
          double sum_g = 0.0, sum_h = 0.0;
          for (end = begin; end < documents.n && documents.score[end] == documents.score[begin] &&
                            documents.target[end] == documents.target[begin] &&
                            documents.weight[end] == documents.weight[begin];
               ++end) {
            sum_g += gradient[end];
            sum_h += hessian[end];
          }
          const double n = static_cast<double>(end - begin);
          std::fill(documents.g + begin, documents.g + end, static_cast<float>(sum_g / n));
          std::fill(documents.h + begin, documents.h + end,
                    std::max(static_cast<float>(sum_h / n), kMinHessian));
        }
      });
}

void neighbour_losses(const QueryInput& input, const NeighbourOptions& options, double* losses,
                      const Context& context) {
  const QueryKernels& kernels = POLYLEAF_SELECT(query_kernels);
  compute_losses(
      input, true, losses, context,
      [&](double scale, Documents& documents, Scratch& scratch, std::vector<double>& terms) {
        visit_orders(options, documents, scratch, [&](const int32_t* order, int64_t n_pairs) {
          for (int64_t rank = 0; rank < n_pairs; ++rank) {
            int32_t i = order[rank], j = order[rank + 1];
            if (documents.target[i] < documents.target[j]) std::swap(i, j);
            const double gained = static_cast<double>(documents.target[i]) - documents.target[j];
            terms.push_back(scale * options.discount[rank] * gained * documents.weight[i] *
                            kernels.softplus(documents.score[j] - documents.score[i]));
          }
        });
      });
}

void listwise_derivatives(const QueryInput& input, float* g, float* h, const Context& context) {
  compute_derivatives(input, false, g, h, context,
                      [](double scale, Documents& documents, Scratch&) {
                        float largest;
                        const double sum = compute_exponentials(documents, largest);
                        const float total = static_cast<float>(scale);
                        const float inverse = static_cast<float>(1.0 / sum);
                        for (int64_t i = 0; i < documents.n; ++i) {
                          const float share = documents.g[i] * inverse;
                          documents.g[i] = total * share - documents.target[i];
                          documents.h[i] = std::max(total * (share * (1.0f - share)), kMinHessian);
                        }
                      });
}

void listwise_losses(const QueryInput& input, double* losses, const Context& context) {
  compute_losses(
      input, false, losses, context,
      [](double scale, Documents& documents, Scratch&, std::vector<double>& terms) {
        float largest;
        const double sum = compute_exponentials(documents, largest);
        terms.push_back(scale * (rounded_log(sum) + largest));
        for (int64_t i = 0; i < documents.n; ++i)
          terms.push_back(-static_cast<double>(documents.target[i]) * documents.score[i]);
      });
}

void pair_derivatives(const QueryInput& input, const PairOptions& options, float* g, float* h,
                      const Context& context) {
  const QueryKernels& kernels = POLYLEAF_SELECT(query_kernels);
  compute_derivatives(
      input, true, g, h, context, [&](double scale, Documents& documents, Scratch& scratch) {
        const Pairs pairs(options, scale, documents, scratch);
        const DocumentGroups groups = pairs.groups();
        const auto runs = pairs.upper_runs();
        kernels.exponentials(groups.score, groups.score[0], scratch.floats(Scratch::kPower),
                             groups.n);
        std::fill_n(groups.gradient, groups.n, 0.0f);
        std::fill_n(groups.hessian, groups.n, 0.0f);
        kernels.add_pairs(pairs.settings(), groups, runs.data(), static_cast<int64_t>(runs.size()));
        documents.n = pairs.n_documents();
        // From the last one, since a group is not after its documents.
        for (int64_t i = documents.n - 1; i >= 0; --i) {
          const int32_t group = pairs.group(i);
          documents.g[i] = groups.gradient[group];
          documents.h[i] = std::max(groups.hessian[group], kMinHessian);
        }
      });
}

void pair_losses(const QueryInput& input, const PairOptions& options, double* losses,
                 const Context& context) {
  const QueryKernels& kernels = POLYLEAF_SELECT(query_kernels);
  compute_losses(
      input, true, losses, context,
      [&](double scale, Documents& documents, Scratch& scratch, std::vector<double>& terms) {
        const Pairs pairs(options, scale, documents, scratch);
        const DocumentGroups groups = pairs.groups();
        int64_t i = 0;
        for (const PairRun& run : pairs.upper_runs())
          for (; i < run.end; ++i)
            for (int64_t j = i + 1; j < groups.n; ++j) {
              const double gained = static_cast<double>(groups.gain[i]) - groups.gain[j];
              if (gained == 0.0) continue;
              const bool is_better = gained > 0.0;
              const PairChange& change = j < run.end ? run.within : run.outside;
              const double changed =
                  static_cast<double>(is_better ? change.above_better : change.above_worse) -
                  static_cast<double>(change.share) * groups.below[j];
              const float difference = groups.score[i] - groups.score[j];
              const double size =
                  scale * changed *
                  std::min<double>(std::abs(gained), pairs.settings().largest_difference) *
                  groups.weight[is_better ? i : j] * groups.count[i] * groups.count[j];
              terms.push_back(size * kernels.softplus(is_better ? -difference : difference));
            }
      });
}

}  // namespace polyleaf
