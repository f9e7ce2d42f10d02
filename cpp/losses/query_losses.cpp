#include "losses/query_losses.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
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

// Memory of one thread.
class Scratch {
 public:
  explicit Scratch(int64_t n)
      : n_(n),
        floats_(static_cast<size_t>(n * kFloats)),
        doubles_(static_cast<size_t>(n * kDoubles)),
        keys_(static_cast<size_t>(n)),
        ties_(static_cast<size_t>(n)),
        position_(static_cast<size_t>(n)),
        sorted_(static_cast<size_t>(n)),
        group_(static_cast<size_t>(n)) {}

  float* floats(int i) { return floats_.data() + i * n_; }
  double* doubles(int i) { return doubles_.data() + i * n_; }
  int32_t* position() { return position_.data(); }
  int32_t* sorted() { return sorted_.data(); }  // documents of the query by descending score
  int32_t* group() { return group_.data(); }    // group of each sorted document
  uint64_t* keys() { return keys_.data(); }
  struct Tie {
    uint64_t key;
    int32_t position;
  };
  Tie* ties() { return ties_.data(); }

  static constexpr int kFloats = 12, kDoubles = 6;

 private:
  int64_t n_;
  std::vector<float> floats_;
  std::vector<double> doubles_;
  std::vector<uint64_t> keys_;
  std::vector<Tie> ties_;
  std::vector<int32_t> position_, sorted_, group_;
};

// Floats of a Scratch.
enum {
  kScore,
  kTarget,
  kWeight,
  kG,
  kH,
  kAll,
  kSumG,
  kSumH,
  kGroupScore,
  kGroupGain,
  kGroupCount,
  kGroupWeight
};

// Weight of document i of a query for a goal.
float read_weight(const QueryInput& input, int64_t row, int64_t goal) {
  if (input.weight == nullptr) return 1.0f;
  return input.weight[row * input.weight_columns + (input.weight_columns == 1 ? 0 : goal)];
}

// Sort the documents of a query by descending score (kAll of the scratch).
void sort_scores(int64_t n, Scratch& scratch) {
  const float* score = scratch.floats(kAll);
  uint64_t* keys = scratch.keys();
  for (int64_t i = 0; i < n; ++i)
    keys[i] = static_cast<uint64_t>(~order_bits(score[i])) << 32 | static_cast<uint64_t>(i);
  std::sort(keys, keys + n);
  for (int64_t i = 0; i < n; ++i) scratch.sorted()[i] = static_cast<int32_t>(keys[i]);
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
      float* all = scratch.floats(kAll);
      for (int64_t i = 0; i < n; ++i) all[i] = input.raw[rows[i] * input.n_outputs + output];
      if (sorts) sort_scores(n, scratch);
      std::fill_n(scratch.floats(kSumG), n, 0.0f);
      std::fill_n(scratch.floats(kSumH), n, 0.0f);
      for (int64_t goal = 0; goal < input.n_goals; ++goal) {
        float factor = output == goal ? 1.0f : 0.0f;
        if (input.goal_weight != nullptr) factor = input.goal_weight[output * input.n_goals + goal];
        const double scale = input.scale[query * input.n_goals + goal];
        if (factor == 0.0f || scale == 0.0) continue;
        Documents documents{0,
                            scratch.floats(kScore),
                            scratch.floats(kTarget),
                            scratch.floats(kWeight),
                            scratch.floats(kG),
                            scratch.floats(kH),
                            scratch.position()};
        for (int64_t at = 0; at < n; ++at) {
          const int32_t i = sorts ? scratch.sorted()[at] : static_cast<int32_t>(at);
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
        float* sum_g = scratch.floats(kSumG);
        float* sum_h = scratch.floats(kSumH);
        for (int64_t i = 0; i < documents.n; ++i) {
          sum_g[documents.position[i]] += factor * documents.g[i];
          sum_h[documents.position[i]] += factor * documents.h[i];
        }
      },
      [&](int64_t, int64_t output, const int32_t* rows, int64_t n, Scratch& scratch) {
        for (int64_t i = 0; i < n; ++i) {
          g[rows[i] * input.n_outputs + output] = scratch.floats(kSumG)[i];
          h[rows[i] * input.n_outputs + output] = scratch.floats(kSumH)[i];
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
  const double n = static_cast<double>(end - begin);
  const int64_t inside = std::min(end, std::max(begin, options.truncation));
  const double* sums = options.discount_sums;
  Run run;
  run.above_better = run.above_worse = (sums[inside] - sums[begin]) / n;
  run.share = static_cast<double>(inside - begin) / n;
  run.below = (sums[end] - sums[begin]) / n;
  run.within = 0.0;
  for (int64_t rank = begin; rank < std::min(inside, end - 1); ++rank)
    run.within +=
        options.discount[rank] * static_cast<double>(end - 1 - rank) - (sums[end] - sums[rank + 1]);
  if (end - begin > 1) run.within /= 0.5 * n * (n - 1.0);
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

// Pairs of the documents of a query: groups of equal score and gain, and runs of equal score.
class Pairs {
 public:
  Pairs(const PairOptions& options, Documents& documents, Scratch& scratch)
      : options_(options), scratch_(scratch) {
    sort_ties(documents, scratch);
    make_groups(documents);
  }

  // Call f(row, first group, last group + 1) for all pairs that count: those of a group with the
  // groups of its run, then with those below.
  template <class F>
  void visit(double scale, F&& f) {
    const bool has_one_score = runs_.size() == 1;
    const bool normalises = options_.normalise && !has_one_score;
    PairRow row;
    row.scale = static_cast<float>(scale);
    row.largest_difference = options_.largest_difference;
    row.margin = normalises ? kScoreMargin : 1.0f;
    row.slope = normalises ? 1.0f : 0.0f;
    int64_t first = 0;
    for (size_t r = 0; r < runs_.size() && first_rank_[r] < options_.truncation; ++r) {
      const Run& run = runs_[r];
      for (int64_t group = first; group < end_group_[r]; ++group) {
        row.group = group;
        row.above_better = row.above_worse = run.within;
        row.share = 0.0;
        f(row, group + 1, end_group_[r]);
        row.above_better = run.above_better;
        row.above_worse = run.above_worse;
        row.share = run.share;
        f(row, end_group_[r], n_groups_);
      }
      first = end_group_[r];
    }
  }

  int64_t n_groups() const { return n_groups_; }

  DocumentGroups groups() {
    return {
        scratch_.floats(kGroupScore),  scratch_.floats(kGroupGain), scratch_.floats(kGroupCount),
        scratch_.floats(kGroupWeight), scratch_.doubles(0),         scratch_.doubles(1),
        scratch_.doubles(2),           scratch_.doubles(3),         scratch_.doubles(4)};
  }

 private:
  void make_groups(const Documents& documents) {
    const DocumentGroups group = groups();
    float* score = scratch_.floats(kGroupScore);
    float* gain = scratch_.floats(kGroupGain);
    float* count = scratch_.floats(kGroupCount);
    float* weight = scratch_.floats(kGroupWeight);
    double* below = scratch_.doubles(0);
    RanksAbove above;
    for (int64_t begin = 0, end; begin < documents.n; begin = end) {
      const int64_t first_group = n_groups_;
      double n_relevant = 0.0;
      for (end = begin; end < documents.n && documents.score[end] == documents.score[begin];) {
        const int64_t first = end;
        double total = 0.0;
        for (; end < documents.n && documents.score[end] == documents.score[begin] &&
               documents.target[end] == documents.target[first];
             ++end) {
          total += documents.weight[end];
          scratch_.group()[end] = static_cast<int32_t>(n_groups_);
        }
        score[n_groups_] = documents.score[first];
        gain[n_groups_] = documents.target[first];
        count[n_groups_] = static_cast<float>(end - first);
        weight[n_groups_] = static_cast<float>(total);
        if (gain[n_groups_] > 0.0f) n_relevant += static_cast<double>(end - first);
        ++n_groups_;
      }
      Run run{1.0, 1.0, 0.0, 0.0, 1.0};
      if (options_.measure == PairMeasure::kNdcg) run = discount_run(options_, begin, end);
      if (options_.measure == PairMeasure::kMap)
        run = precision_run(options_, begin, end, n_relevant, above);
      for (int64_t i = first_group; i < n_groups_; ++i) below[i] = run.below;
      runs_.push_back(run);
      first_rank_.push_back(begin);
      end_group_.push_back(n_groups_);
    }
    for (double* sums : {group.better, group.worse, group.better_hessian, group.worse_hessian})
      std::fill_n(sums, n_groups_, 0.0);
  }

  const PairOptions& options_;
  Scratch& scratch_;
  int64_t n_groups_ = 0;
  std::vector<Run> runs_;
  std::vector<int64_t> first_rank_, end_group_;  // of each run
};

// --- neighbours in random orders ---

// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Call f(better, worse, weight of the pair without that of its documents, e) for the neighbours; e
// is e^-|difference of scores|.
template <class F>
void visit_neighbours(const NeighbourOptions& options, Documents& documents, Scratch& scratch,
                      F&& f) {
  sort_ties(documents, scratch);
  uint64_t state = static_cast<uint64_t>(documents.n);
  for (int64_t i = 0; i < documents.n; ++i)
    state = mix(state ^ (static_cast<uint64_t>(order_bits(documents.score[i])) << 32 |
                         order_bits(documents.target[i])));
  uint64_t* keys = scratch.keys();
  const int64_t n_pairs = std::min(documents.n - 1, options.truncation);
  for (int64_t order = 0; order < options.n_orders; ++order) {
    for (int64_t i = 0; i < documents.n; ++i) {
      state += 0x9e3779b97f4a7c15u;
      const float noise = options.noise[mix(state) >> (64 - kNoiseBits)];
      keys[i] = static_cast<uint64_t>(~order_bits(documents.score[i] + noise)) << 32 |
                static_cast<uint64_t>(i);
    }
    if (n_pairs + 1 < documents.n)
      std::partial_sort(keys, keys + n_pairs + 1, keys + documents.n);
    else
      std::sort(keys, keys + documents.n);
    float* differences = documents.g;
    float* e = documents.h;
    for (int64_t rank = 0; rank < n_pairs; ++rank)
      differences[rank] = -std::abs(documents.score[static_cast<int32_t>(keys[rank])] -
                                    documents.score[static_cast<int32_t>(keys[rank + 1])]);
    POLYLEAF_SELECT(query_kernels).exponentials(differences, 0.0f, e, n_pairs);
    for (int64_t rank = 0; rank < n_pairs; ++rank) {
      int64_t better = static_cast<int32_t>(keys[rank]);
      int64_t worse = static_cast<int32_t>(keys[rank + 1]);
      if (documents.target[better] < documents.target[worse]) std::swap(better, worse);
      const double gained = static_cast<double>(documents.target[better]) - documents.target[worse];
      if (gained > 0.0) f(better, worse, options.discount[rank] * gained, e[rank]);
    }
  }
}

}  // namespace

void neighbour_derivatives(const QueryInput& input, const NeighbourOptions& options, float* g,
                           float* h, const Context& context) {
  compute_derivatives(
      input, true, g, h, context, [&](double scale, Documents& documents, Scratch& scratch) {
        double* gradient = scratch.doubles(0);
        double* hessian = scratch.doubles(1);
        std::fill_n(gradient, documents.n, 0.0);
        std::fill_n(hessian, documents.n, 0.0);
        const auto add = [&](int64_t i, int64_t j, double size, double e) {
          const double inverse = 1.0 / (1.0 + e), weight = scale * size * documents.weight[i];
          const bool is_right = documents.score[i] > documents.score[j];
          const double pair_gradient = weight * (is_right ? e * inverse : inverse);
          const double pair_hessian = weight * (e * inverse * inverse);
          gradient[i] -= pair_gradient;
          gradient[j] += pair_gradient;
          hessian[i] += pair_hessian;
          hessian[j] += pair_hessian;
        };
        visit_neighbours(options, documents, scratch, add);
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
  compute_losses(
      input, true, losses, context,
      [&](double scale, Documents& documents, Scratch& scratch, std::vector<double>& terms) {
        const auto add = [&](int64_t i, int64_t j, double size, double e) {
          const double shortfall =
              std::max(static_cast<double>(documents.score[j]) - documents.score[i], 0.0);
          terms.push_back(scale * size * documents.weight[i] * (shortfall + rounded_log1p(e)));
        };
        visit_neighbours(options, documents, scratch, add);
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
        Pairs pairs(options, documents, scratch);
        const DocumentGroups groups = pairs.groups();
        double sum = 0.0;
        pairs.visit(scale, [&](const PairRow& row, int64_t begin, int64_t end) {
          sum += kernels.add_pairs(row, groups, begin, end);
        });
        double factor = 1.0;
        if (options.normalise && sum > 0.0)
          factor = rounded_log1p(2.0 * sum) / (rounded_log(2.0) * (2.0 * sum));
        for (int64_t i = 0; i < documents.n; ++i) {
          const int32_t group = scratch.group()[i];
          const double weight = documents.weight[i];
          const double gradient = groups.worse[group] - weight * groups.better[group];
          const double hessian =
              groups.worse_hessian[group] + weight * groups.better_hessian[group];
          documents.g[i] = static_cast<float>(factor * gradient);
          documents.h[i] = std::max(static_cast<float>(factor * hessian), kMinHessian);
        }
      });
}

void pair_losses(const QueryInput& input, const PairOptions& options, double* losses,
                 const Context& context) {
  compute_losses(
      input, true, losses, context,
      [&](double scale, Documents& documents, Scratch& scratch, std::vector<double>& terms) {
        Pairs pairs(options, documents, scratch);
        const DocumentGroups groups = pairs.groups();
        pairs.visit(scale, [&](const PairRow& row, int64_t begin, int64_t end) {
          for (int64_t j = begin; j < end; ++j) {
            const int64_t i = row.group;
            const double gained = static_cast<double>(groups.gain[i]) - groups.gain[j];
            if (gained == 0.0) continue;
            const bool is_better = gained > 0.0;
            const double change =
                (is_better ? row.above_better : row.above_worse) - row.share * groups.below[j];
            const double difference = static_cast<double>(groups.score[i]) - groups.score[j];
            const double size =
                scale * change * std::min<double>(std::abs(gained), row.largest_difference) *
                (is_better ? static_cast<double>(groups.weight[i]) * groups.count[j]
                           : static_cast<double>(groups.weight[j]) * groups.count[i]);
            const double shortfall = is_better ? 0.0 : difference;
            terms.push_back(size * (shortfall + rounded_log1p(rounded_exp(-difference))));
          }
        });
      });
}

}  // namespace polyleaf
