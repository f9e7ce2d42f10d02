#include "leaves/linear.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/fixed_point.h"
#include "base/parallel.h"
#include "leaves/kernels/linear_leaf_kernels.h"
#include "leaves/leaf_block.h"
#include "leaves/newton.h"

namespace polyleaf {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kPadding = 16;  // floats behind columns that are read sixteen at a time

// State of one fit.
class Fit {
 public:
  Fit(MatrixView<const float> g, MatrixView<const float> h, const RowSample& sample,
      const int32_t* leaf_of_row, const Tree& tree, const FeatureMatrix& features,
      const LinearTable& table, const LinearLeafConfig& config, const Context& context)
      : g_(g),
        h_(h),
        n_outputs_(static_cast<int>(g.n_columns)),
        h_columns_(h ? static_cast<int>(h.n_columns) : 1),
        sample_(sample),
        leaf_of_row_(leaf_of_row),
        n_leaves_(tree.n_leaves),
        features_(features),
        table_(table),
        config_(config),
        context_(context),
        kernels_(POLYLEAF_SELECT(linear_leaf_kernels)),
        regressors_(path_regressors(
            tree, table, std::isfinite(config.linear_lambda) ? config.max_regressors : 0)),
        scratch_(context.n_threads) {}

  std::shared_ptr<LinearLeaves> run() {
    std::vector<float> max_h, max_g;
    hessian_ = sum_leaf_hessians(h_, sample_, leaf_of_row_, n_leaves_, context_, &max_h);
    gradient_ = sum_by_leaf(g_, sample_, leaf_of_row_, n_leaves_, context_, &max_g);
    for (int j = 0; j < h_columns_; ++j) h_top_.push_back(get_exponent_above(max_h[j]));
    for (int k = 0; k < n_outputs_; ++k) g_top_.push_back(get_exponent_above(max_g[k]));
    split_rows();
    gather_regressors();
    find_centres();
    find_units();
    sum_moments();
    solve();
    if (config_.clip) bound();
    return assemble();
  }

 private:
  // Up to kSumBlock rows of one leaf; `x` is the offset of their regressors in x_, `slot` that of
  // their moments.
  struct Piece {
    int32_t leaf;
    int64_t begin, n;
    size_t x, slot;
  };
  struct Scratch {
    Buffer<double> weight, z, weighted;
    std::vector<float> scores;
    std::vector<uint32_t> zeros;
  };

  int regressors(int64_t leaf) const { return static_cast<int>(regressors_.count(leaf)); }
  // Number of moments of a leaf: Gram matrices, sums of regressors and right-hand sides.
  size_t n_moments(int p) const {
    return static_cast<size_t>(h_columns_) * (packed_size(p) + p) +
           static_cast<size_t>(p) * n_outputs_;
  }

  // Sort rows by leaf, ascending within a leaf, and split them into pieces.
  void split_rows() {
    ids_.reserve(sample_.n_used());
    const std::vector<int64_t> begin =
        group_rows_by_leaf(sample_, leaf_of_row_, n_leaves_, ids_.data());
    std::vector<int64_t> counts(n_leaves_);
    size_t x = 0, slot = 0;
    moments_begin_.push_back(0);
    for (int32_t leaf = 0; leaf < n_leaves_; ++leaf) {
      const int p = regressors(leaf);
      counts[leaf] = begin[leaf + 1] - begin[leaf];
      moments_begin_.push_back(moments_begin_.back() + n_moments(p));
      if (p == 0) continue;
      for (int64_t b = begin[leaf]; b < begin[leaf + 1]; b += kSumBlock) {
        const int64_t size = std::min(kSumBlock, begin[leaf + 1] - b);
        pieces_.push_back({leaf, b, size, x, slot});
        x += static_cast<size_t>(size) * p;
        slot += std::max<size_t>(n_moments(p), 2 * p);
      }
    }
    x_.reserve(x + kPadding);
    terms_.reserve(slot);
    context_.allreduce_sum(counts);
    for (const int64_t count : counts) bits_.push_back(get_term_bits(count));
  }

  template <class F>
  void process_pieces(F f) {
    parallel_for(context_, static_cast<int64_t>(pieces_.size()),
                 [&](int64_t task, int thread) { f(pieces_[task], scratch_[thread]); });
  }

  // Gather the regressors of every piece's rows, feature by feature, as a column may fit the cache,
  // and find their range in every leaf.
  void gather_regressors() {
    struct Column {
      int32_t feature;
      int j;
      const Piece* piece;
    };
    std::vector<Column> columns;
    for (const Piece& piece : pieces_)
      for (int j = 0; j < regressors(piece.leaf); ++j)
        columns.push_back({regressors_.features[regressors_.begin[piece.leaf] + j], j, &piece});
    std::stable_sort(columns.begin(), columns.end(),
                     [](const Column& a, const Column& b) { return a.feature < b.feature; });
    parallel_for(context_, static_cast<int64_t>(columns.size()), [&](int64_t task, int) {
      const auto& [feature, j, piece] = columns[task];
      float range[] = {kInfinity, -kInfinity};
      kernels_.gather(features_.data + feature * features_.n_rows, ids_.data() + piece->begin,
                      piece->n, x_.data() + piece->x + j * piece->n, range);
      std::copy_n(range, 2, terms_.data() + piece->slot + 2 * j);
    });
    // minus the smallest, and the largest
    range_.assign(2 * regressors_.features.size(), -kInfinity);
    for (const Piece& piece : pieces_) {
      double* of = range_.data() + 2 * regressors_.begin[piece.leaf];
      const double* own = terms_.data() + piece.slot;
      for (int j = 0; j < 2 * regressors(piece.leaf); j += 2) {
        of[j] = std::max(of[j], -own[j]);
        of[j + 1] = std::max(of[j + 1], own[j + 1]);
      }
    }
    context_.allreduce_max(range_);
    is_finite_.assign(n_leaves_, 1);
    for (int32_t leaf = 0; leaf < n_leaves_; ++leaf)
      for (int64_t e = regressors_.begin[leaf]; e < regressors_.begin[leaf + 1]; ++e)
        for (const double side : {range_[2 * e], range_[2 * e + 1]})
          if (side == static_cast<double>(kInfinity)) is_finite_[leaf] = 0;
  }

  // Return the largest magnitude of a transformed regressor in a leaf; 0 if it is always missing.
  template <class Transform>
  double max_magnitude(int64_t entry, Transform transform) const {
    const double low = -range_[2 * entry], high = range_[2 * entry + 1];
    return low > high ? 0.0 : std::max(std::fabs(transform(low)), std::fabs(transform(high)));
  }

  // Return the float64 Hessians of a piece's rows times their multipliers, scaled for the leaf: the
  // sum of several columns, divided by the power of two that is not below their number.
  const double* weights(const Piece& piece, Scratch& s) const {
    s.weight.reserve(piece.n);
    const int top = *std::max_element(h_top_.begin(), h_top_.end());
    const int shift = std::bit_width(static_cast<unsigned>(h_columns_ - 1));
    const double unit = std::ldexp(1.0, bits_[piece.leaf] - top - shift);
    for (int64_t i = 0; i < piece.n; ++i) {
      const int64_t row = ids_[piece.begin + i];
      const float m = sample_.factor(row);
      double sum = 0;
      for (int c = 0; c < h_columns_; ++c) sum += static_cast<double>(h_ ? h_(row, c) * m : m);
      s.weight[i] = sum * unit;
    }
    return s.weight.data();
  }

  void find_centres() {
    std::vector<int> top(regressors_.features.size());
    for (size_t e = 0; e < top.size(); ++e)
      top[e] =
          get_exponent_above(max_magnitude(static_cast<int64_t>(e), [](double x) { return x; }));
    process_pieces([&](const Piece& piece, Scratch& s) {
      if (!is_finite_[piece.leaf]) return;
      const double* w = weights(piece, s);
      for (int j = 0; j < regressors(piece.leaf); ++j)
        kernels_.mean_sums(x_.data() + piece.x + static_cast<size_t>(j) * piece.n, w,
                           std::ldexp(1.0, -top[regressors_.begin[piece.leaf] + j]), piece.n,
                           terms_.data() + piece.slot + 2 * j);
    });
    std::vector<int64_t> sums(2 * regressors_.features.size(), 0);
    add_pieces(sums, [&](int32_t leaf) { return 2 * regressors_.begin[leaf]; });
    centre_.assign(regressors_.features.size(), 0.0f);
    for (size_t e = 0; e < centre_.size(); ++e) {
      const auto weight = static_cast<double>(sums[2 * e]),
                 total = static_cast<double>(sums[2 * e + 1]);
      if (weight > 0) centre_[e] = static_cast<float>(std::ldexp(total / weight, top[e]));
    }
  }

  // Sum the pieces over all ranks; the sums of a leaf are leaf_begin(leaf) .. leaf_begin(leaf +
  // 1) - 1.
  template <class LeafBegin>
  void add_pieces(std::vector<int64_t>& sums, LeafBegin leaf_begin) const {
    for (const Piece& piece : pieces_) {
      if (!is_finite_[piece.leaf]) continue;
      const size_t begin = leaf_begin(piece.leaf), n = leaf_begin(piece.leaf + 1) - begin;
      for (size_t j = 0; j < n; ++j)
        sums[begin + j] += static_cast<int64_t>(terms_[piece.slot + j]);
    }
    if (!sums.empty()) context_.allreduce_sum(sums);
  }

  double inverse_scale(int64_t entry) const {
    return 1 / table_.scale(regressors_.features[entry]);
  }

  // Find powers of two above the standardised regressors of every leaf.
  void find_units() {
    for (int32_t leaf = 0; leaf < n_leaves_; ++leaf)
      for (int64_t e = regressors_.begin[leaf]; e < regressors_.begin[leaf + 1]; ++e) {
        const double centre = centre_[e], inverse = inverse_scale(e);
        const double largest = max_magnitude(e, [&](double x) { return (x - centre) * inverse; });
        if (!std::isfinite(largest)) is_finite_[leaf] = 0;
        z_top_.push_back(std::isfinite(largest) ? get_exponent_above(largest) : 0);
      }
  }

  // Return the scale of each column of derivatives, padded with zeros to a multiple of 8.
  static std::vector<double> make_units(const std::vector<int>& tops, int bits) {
    std::vector<double> units((tops.size() + 7) / 8 * 8, 0.0);
    for (size_t j = 0; j < tops.size(); ++j) units[j] = std::ldexp(1.0, bits - tops[j]);
    return units;
  }

  void sum_moments() {
    process_pieces([&](const Piece& piece, Scratch& s) {
      if (!is_finite_[piece.leaf]) return;
      const int p = regressors(piece.leaf), triangle = packed_size(p), bits = bits_[piece.leaf];
      const int64_t first = regressors_.begin[piece.leaf];
      // Most pieces are short: with room for the longest, memory would take as long as the sums.
      const int64_t n_columns = h_columns_ == 1 ? p : p + triangle, step = piece.n;
      s.z.reserve(static_cast<size_t>(n_columns * step));
      s.weighted.reserve(piece.n);
      for (int j = 0; j < p; ++j)
        kernels_.standardise(x_.data() + piece.x + static_cast<size_t>(j) * piece.n, piece.n,
                             centre_[first + j], inverse_scale(first + j),
                             std::ldexp(1.0, -z_top_[first + j]), s.z.data() + j * step);
      double* out = terms_.data() + piece.slot;
      const uint32_t* ids = ids_.data() + piece.begin;
      if (h_columns_ == 1) {
        const double* w = weights(piece, s);
        for (int i = 0; i < p; ++i) {
          const double* zi = s.z.data() + i * step;
          for (int64_t r = 0; r < piece.n; ++r) s.weighted[r] = w[r] * zi[r];
          out[triangle + i] = kernels_.dot(w, zi, piece.n);
          for (int j = 0; j <= i; ++j)
            out[packed(i, j)] = kernels_.dot(s.weighted.data(), s.z.data() + j * step, piece.n);
        }
        out += triangle + p;
      } else {
        // Products of regressors follow them, so that one pass over the Hessians suffices.
        for (int i = 0; i < p; ++i)
          for (int j = 0; j <= i; ++j) {
            double* product = s.z.data() + (p + packed(i, j)) * step;
            for (int64_t r = 0; r < piece.n; ++r)
              product[r] = s.z[i * step + r] * s.z[j * step + r];
          }
        kernels_.outer(s.z.data(), step, p + triangle, h_.data, make_units(h_top_, bits).data(),
                       h_columns_, ids, sample_, piece.n, out);
        out += static_cast<size_t>(p + triangle) * h_columns_;
      }
      if (n_outputs_ > 1)
        return kernels_.outer(s.z.data(), step, p, g_.data, make_units(g_top_, bits).data(),
                              n_outputs_, ids, sample_, piece.n, out);
      const double unit = std::ldexp(1.0, bits - g_top_[0]);
      for (int64_t r = 0; r < piece.n; ++r)
        s.weighted[r] = static_cast<double>(g_.data[ids[r]] * sample_.factor(ids[r])) * unit;
      for (int j = 0; j < p; ++j)
        out[j] = kernels_.dot(s.weighted.data(), s.z.data() + j * step, piece.n);
    });
    moments_.assign(moments_begin_.back(), 0);
    add_pieces(moments_, [&](int32_t leaf) { return moments_begin_[leaf]; });
  }

  void solve() {
    weights_.assign(regressors_.features.size() * static_cast<size_t>(n_outputs_), 0.0f);
    intercept_.assign(static_cast<size_t>(n_leaves_) * n_outputs_, 0.0f);
    parallel_for(context_, n_leaves_, [&](int64_t leaf, int) {
      if (is_finite_[leaf])
        solve_leaf(leaf, regressors(leaf), moments_as_floats(leaf));
      else
        make_constant(leaf, regressors(leaf));
    });
  }

  // Convert the moments of a leaf to floats, in the order of `sum_moments`.
  std::vector<double> moments_as_floats(int64_t leaf) const {
    const int p = regressors(leaf), m = h_columns_;
    const int64_t* sum = moments_.data() + moments_begin_[leaf];
    const int* z = z_top_.data() + regressors_.begin[leaf];
    std::vector<double> found;
    const auto take = [&](int power) {
      found.push_back(std::ldexp(static_cast<double>(*sum++), power - bits_[leaf]));
    };
    const auto gram = [&] {
      for (int i = 0; i < p; ++i)
        for (int j = 0; j <= i; ++j)
          for (int c = 0; c < m; ++c) take(z[i] + z[j] + h_top_[c]);
    };
    const auto append_products = [&](const std::vector<int>& top) {
      for (int i = 0; i < p; ++i)
        for (const int column : top) take(z[i] + column);
    };
    if (m == 1) gram();
    append_products(h_top_);
    if (m > 1) gram();
    append_products(g_top_);
    return found;
  }

  // Moments of a leaf as `sum_moments` lays them out. With one Hessian column: the Gram triangle,
  // then the sums of regressors; otherwise the sums, then the triangle, column by column.
  // Products with gradients come last.
  struct Moments {
    const double *gram, *sums, *products;
    int stride;
  };
  Moments get_moments(const std::vector<double>& all, int p, int column) const {
    const int triangle = packed_size(p), m = h_columns_;
    return {all.data() + (m == 1 ? 0 : p * m + column), all.data() + (m == 1 ? triangle : column),
            all.data() + static_cast<size_t>(triangle + p) * m, m};
  }
  double hessian(int64_t leaf, int column) const {
    return hessian_[leaf * h_columns_ + column] + config_.reg_lambda;
  }

  void solve_leaf(int64_t leaf, int p, const std::vector<double>& sums) {
    std::vector<double> A(packed_size(p)), inverse(p), t(static_cast<size_t>(p) * n_outputs_);
    bool finite = true;
    for (int column = 0; column < h_columns_; ++column) {
      const int columns = h_columns_ == 1 ? n_outputs_ : 1, first = h_columns_ == 1 ? 0 : column;
      const Moments moments = get_moments(sums, p, column);
      const double total = hessian(leaf, column);
      set_up(moments, p, total, gradient_.data() + leaf * n_outputs_, first, columns, A.data(),
             t.data());
      eliminate<kLeafPivotBits>(A.data(), p, t.data(), columns, inverse.data());
      substitute(A.data(), p, t.data(), columns, inverse.data());
      for (int k = 0; k < columns; ++k)
        finite &= keep_function(leaf, first + k, p, total, moments, t.data() + k, columns);
    }
    if (!finite) make_constant(leaf, p);
  }

  // Set up the system of outputs first .. first + columns - 1 with regressors centred on the
  // leaf: A (lower triangle, with the ridge) and right-hand sides t (p, columns). G: gradients of
  // the leaf.
  void set_up(const Moments& of, int p, double total, const double* G, int first, int columns,
              double* A, double* t) const {
    const double inverse = total > 0 ? 1.0 / total : 0.0;
    const auto sum = [&](int i) { return of.sums[i * of.stride]; };
    for (int i = 0; i < p; ++i) {
      for (int j = 0; j <= i; ++j)
        A[packed(i, j)] = of.gram[packed(i, j) * of.stride] - (sum(i) * sum(j)) * inverse;
      A[packed(i, i)] += config_.linear_lambda;
      for (int k = 0; k < columns; ++k)
        t[i * columns + k] =
            of.products[i * n_outputs_ + first + k] - sum(i) * (G[first + k] * inverse);
    }
  }

  // Store slopes and intercept of output k from its negated solution (p numbers, `step` apart);
  // return whether all are finite.
  bool keep_function(int64_t leaf, int k, int p, double total, const Moments& of,
                     const double* solution, int step) {
    const int64_t entry = regressors_.begin[leaf];
    const double inverse = total > 0 ? 1.0 / total : 0.0;
    bool finite = true;
    double shift = 0;
    for (int i = 0; i < p; ++i) {
      const double slope = -solution[i * step];
      shift += of.sums[i * of.stride] * slope;
      const double scale = 1 / table_.scale(regressors_.features[entry + i]);
      const float w = static_cast<float>((slope * config_.learning_rate) * scale);
      finite &= std::isfinite(w);
      weights_[(entry + i) * n_outputs_ + k] = w;
    }
    shift = -(shift * inverse);
    const float b = static_cast<float>((constant(leaf, k, total) + shift) * config_.learning_rate);
    intercept_[leaf * n_outputs_ + k] = b;
    return finite && std::isfinite(b);
  }

  // Value of a constant leaf before the learning rate.
  double constant(int64_t leaf, int k, double total) const {
    return total > 0 ? -gradient_[leaf * n_outputs_ + k] / total : 0.0;
  }
  void make_constant(int64_t leaf, int p) {
    for (int k = 0; k < n_outputs_; ++k) {
      const double total = hessian(leaf, h_columns_ == 1 ? 0 : k);
      intercept_[leaf * n_outputs_ + k] =
          static_cast<float>(constant(leaf, k, total) * config_.learning_rate);
    }
    std::fill_n(weights_.begin() + regressors_.begin[leaf] * n_outputs_,
                static_cast<size_t>(p) * n_outputs_, 0.0f);
  }

  // Return the leaf's regressors with a non-zero slope, sorted by feature.
  std::vector<int> kept(int64_t leaf) const {
    const int64_t first = regressors_.begin[leaf];
    std::vector<int> order;
    for (int j = 0; j < regressors(leaf); ++j) {
      const float* w = weights_.data() + (first + j) * n_outputs_;
      if (std::any_of(w, w + n_outputs_, [](float x) { return x != 0; })) order.push_back(j);
    }
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return regressors_.features[first + a] < regressors_.features[first + b];
    });
    return order;
  }

  // Compute the smallest and largest value of every leaf's rows with the prediction kernel.
  void bound() {
    const AddLeaves add = kLinear.adder();
    const int64_t stride = padded_columns(n_outputs_),
                  step = std::max<int64_t>(16, 65536 / n_outputs_);
    std::vector<std::vector<float>> lower(pieces_.size()), upper(pieces_.size());
    const Piece* begin = pieces_.data();
    process_pieces([&](const Piece& piece, Scratch& s) {
      const std::vector<int> order = kept(piece.leaf);
      const int64_t first = regressors_.begin[piece.leaf];
      std::vector<float> weights(order.size() * stride, 0.0f), centre, intercept(stride, 0.0f);
      std::vector<float> below(stride, -kInfinity), above(stride, kInfinity);
      for (size_t e = 0; e < order.size(); ++e) {
        std::copy_n(weights_.begin() + (first + order[e]) * n_outputs_, n_outputs_,
                    weights.begin() + e * stride);
        centre.push_back(centre_[first + order[e]]);
      }
      std::copy_n(intercept_.begin() + static_cast<int64_t>(piece.leaf) * n_outputs_, n_outputs_,
                  intercept.begin());
      const int64_t span[2] = {0, static_cast<int64_t>(order.size())};
      const std::vector<int32_t> index(order.begin(), order.end());
      const LeafView view{&kLinear,     n_outputs_,   stride,         intercept.data(),
                          span,         index.data(), weights.data(), centre.data(),
                          below.data(), above.data()};
      const size_t p = static_cast<size_t>(&piece - begin);
      lower[p].assign(n_outputs_, kInfinity);
      upper[p].assign(n_outputs_, -kInfinity);
      s.zeros.resize(std::max(s.zeros.size(), static_cast<size_t>(piece.n)));
      for (int64_t r = 0; r < piece.n; r += step) {
        const int64_t n = std::min(step, piece.n - r);
        s.scores.assign(static_cast<size_t>(n) * n_outputs_ + kPadding, 0.0f);
        const RowFeatures x{x_.data() + piece.x + r, piece.n};
        if (n_outputs_ == 1)
          kernels_.evaluate_column(view, x.data, x.step, n, s.scores.data());
        else
          add(view, s.zeros.data(), n, x, s.scores.data(), n_outputs_);
        kernels_.bound(s.scores.data(), n_outputs_, n, lower[p].data(), upper[p].data());
      }
    });
    lower_.assign(intercept_.size(), kInfinity);
    upper_.assign(intercept_.size(), -kInfinity);
    for (size_t p = 0; p < pieces_.size(); ++p)
      for (int k = 0; k < n_outputs_; ++k) {
        const size_t i = static_cast<size_t>(pieces_[p].leaf) * n_outputs_ + k;
        lower_[i] = std::min(lower_[i], lower[p][k]);
        upper_[i] = std::max(upper_[i], upper[p][k]);
      }
    bound_by_ranks();
    for (size_t i = 0; i < lower_.size(); ++i)  // leaves without regressors
      if (lower_[i] > upper_[i]) lower_[i] = upper_[i] = intercept_[i];
  }

  void bound_by_ranks() {
    if (!context_.is_distributed()) return;
    std::vector<double> widest(upper_.begin(), upper_.end());
    for (const float lower : lower_) widest.push_back(-lower);
    context_.allreduce_max(widest);
    for (size_t i = 0; i < upper_.size(); ++i) {
      upper_[i] = static_cast<float>(widest[i]);
      lower_[i] = static_cast<float>(-widest[upper_.size() + i]);
    }
  }

  std::shared_ptr<LinearLeaves> assemble() {
    if (!config_.clip) {
      lower_.assign(intercept_.size(), -kInfinity);
      upper_.assign(intercept_.size(), kInfinity);
    }
    std::vector<int64_t> begin(1, 0);
    std::vector<int32_t> features;
    std::vector<float> weights, centre;
    for (int64_t leaf = 0; leaf < n_leaves_; ++leaf) {
      for (int j : kept(leaf)) {
        const int64_t e = regressors_.begin[leaf] + j;
        features.push_back(regressors_.features[e]);
        centre.push_back(centre_[e]);
        weights.insert(weights.end(), weights_.begin() + e * n_outputs_,
                       weights_.begin() + (e + 1) * n_outputs_);
      }
      begin.push_back(static_cast<int64_t>(features.size()));
    }
    return std::make_shared<LinearLeaves>(
        LinearArrays{begin,
                     features,
                     {weights.data(), static_cast<int64_t>(features.size()), n_outputs_},
                     centre,
                     {intercept_.data(), n_leaves_, n_outputs_},
                     {lower_.data(), n_leaves_, n_outputs_},
                     {upper_.data(), n_leaves_, n_outputs_}});
  }

  const MatrixView<const float> g_, h_;
  const int n_outputs_, h_columns_;
  const RowSample& sample_;
  const int32_t* leaf_of_row_;
  const int32_t n_leaves_;
  const FeatureMatrix& features_;
  const LinearTable& table_;
  const LinearLeafConfig& config_;
  const Context context_;
  const LinearLeafKernels& kernels_;
  const Regressors regressors_;
  std::vector<Scratch> scratch_;
  std::vector<double> gradient_, hessian_;  // per leaf
  std::vector<Piece> pieces_;
  Buffer<uint32_t> ids_;
  Buffer<float> x_;
  Buffer<double> terms_;       // sums of pieces
  std::vector<double> range_;  // of regressors in leaves: minus the smallest, and the largest
  std::vector<int> bits_, h_top_, g_top_,
      z_top_;                          // bits of a leaf's terms; powers of two above the values
  std::vector<char> is_finite_;        // whether a leaf's regressors are finite
  std::vector<size_t> moments_begin_;  // offset of each leaf in moments_, and the end
  std::vector<int64_t> moments_;
  std::vector<float> centre_, weights_, intercept_, lower_, upper_;
};

}  // namespace

Regressors path_regressors(const Tree& tree, const LinearTable& table, int32_t max_regressors) {
  std::vector<std::vector<int32_t>> node_features(tree.n_nodes()), leaf_features(tree.n_leaves);
  for (int32_t i = 0; i < tree.n_nodes(); ++i) {
    std::vector<int32_t> features = std::move(node_features[i]);
    if (tree.left[i] < 0) {
      leaf_features[tree.leaf[i]] = std::move(features);
      continue;
    }
    const int32_t f = tree.feature[i];
    if (tree.category_set[i] < 0 && table.is_regressor(f) &&
        static_cast<int32_t>(features.size()) < max_regressors &&
        std::find(features.begin(), features.end(), f) == features.end())
      features.push_back(f);
    node_features[tree.left[i]] = features;
    node_features[tree.right[i]] = std::move(features);
  }
  Regressors regressors{{0}, {}};
  for (const std::vector<int32_t>& leaf : leaf_features) {
    regressors.features.insert(regressors.features.end(), leaf.begin(), leaf.end());
    regressors.begin.push_back(static_cast<int64_t>(regressors.features.size()));
  }
  return regressors;
}

std::shared_ptr<LinearLeaves> fit_linear_leaves(
    MatrixView<const float> g, MatrixView<const float> h, const RowSample& sample,
    const int32_t* leaf_of_row, const Tree& tree, const FeatureMatrix& features,
    const LinearTable& table, const LinearLeafConfig& config, const Context& context) {
  return Fit(g, h, sample, leaf_of_row, tree, features, table, config, context).run();
}

}  // namespace polyleaf
