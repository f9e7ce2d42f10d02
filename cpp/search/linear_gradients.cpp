#include "search/linear_gradients.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "quantised_gradients/quantised_gradients.h"
#include "search/kernels/linear_gradient_kernels.h"
#include "search/node_scale.h"

namespace polyleaf {
namespace {

constexpr int64_t kRowBlock = 8192;  // rows per task
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Unlike std::isfinite, several at once: all bits of the exponent are set.
uint32_t is_infinite_or_nan(float x) {
  constexpr uint32_t kExponent = 0x7f800000;
  return (__builtin_bit_cast(uint32_t, x) & kExponent) == kExponent;
}

}  // namespace

void LinearGradients::quantise(const float* g, const float* h, int n_outputs, HessianKind hessian,
                               const RowSample& sample, const Context& context) {
  hessian_ = hessian;
  n_outputs_ = n_outputs;
  context_ = context;
  sample_ = sample;
  if (sample.rows != nullptr) {
    sample_rows_.assign(sample.rows, sample.rows + sample.n_rows);
    sample_.rows = non_null_data(sample_rows_.data(), sample_rows_.size());
  }
  sample_.multiplier = nullptr;  // the copies include it
  layouts_.clear();
  for (int p = 0; p <= (config_.full ? config_.max_regressors : is_narrow() ? 1 : 0); ++p)
    layouts_.push_back(ChannelLayout::make(n_outputs, hessian, p));
  stride_ = n_derivatives() <= 4 ? 4 : (n_derivatives() + 7) / 8 * 8;
  rows_.reserve(static_cast<size_t>(sample.n_all) * stride_ + 16);
  const bool narrow = is_narrow();
  const int m_hessian = n_hessian(), used = n_derivatives(), stride = stride_;
  std::atomic<bool> finite{true};
  parallel_for(context_, Block::count(sample.n_all, kRowBlock), [&](int64_t task, int) {
    const Block block(sample.n_all, kRowBlock, task);
    uint32_t infinite = 0;
    for (int64_t i = block.begin; i < block.end; ++i) {
      const float m = sample.factor(i);
      float* row = rows_.data() + i * stride;
      if (narrow) {
        row[0] = g[i] * m;
        row[1] = h != nullptr ? h[i] * m : 1.0f;
        row[2] = 0;
        row[3] = 1;
        infinite |= is_infinite_or_nan(row[0]) | is_infinite_or_nan(row[1]);
        continue;
      }
      for (int k = 0; k < n_outputs; ++k) row[k] = g[i * n_outputs + k] * m;
      for (int j = 0; j < m_hessian; ++j) row[n_outputs + j] = h[i * m_hessian + j] * m;
      for (int j = used; j < stride; ++j) row[j] = 0;
      for (int k = 0; k < used; ++k) infinite |= is_infinite_or_nan(row[k]);
    }
    if (infinite != 0) finite = false;
  });
  if (!finite) check_finite(kInfinity);
}

void LinearGradients::start(const TreeContext& tree, const SearchNode& root) {
  tree_ = &tree;
  root_ = root;
  nodes_.clear();
  nodes_.add().start();
  std::vector<Request> request{{root.id, root.rows, root.count, nullptr, &root_totals_}};
  root_channels_ = nullptr;
  fill(request);
  root_channels_ = request[0].channels;
}

CategoricalOverfit LinearGradients::categorical_overfit() const {
  const Node& root = nodes_[0];
  RowSample rows;
  rows.n_all = root_.rows.size();
  return estimate_categorical_overfit({root.layout, root_totals_.data(), root_.count,
                                       root.gradient_step.data(), root.hessian_step.data()},
                                      sum_squares(*root.layout, root_channels_, rows, context_));
}

ChannelView LinearGradients::view(int32_t node) const {
  const Node& n = nodes_[node];
  return {n.layout, n.gradient_step.data(), n.hessian_step.data(), &n.scan};
}

void LinearGradients::fill(std::vector<Request>& requests) {
  if (requests.empty()) return;
  if (requests[0].node == 0 && root_channels_ != nullptr) {
    requests[0].channels = root_channels_;
    *requests[0].totals = root_totals_;
    return;
  }
  batch_.clear();
  size_t n_floats = 0, n_integers = 0;
  for (const Request& request : requests) {
    Columns& c = batch_.add();
    c.node = &nodes_[request.node];
    c.request = &request;
    c.p = n_regressors(*c.node);
    c.node->layout = &layouts_[c.p];
    c.at = n_floats;
    c.channels = n_integers;
    const size_t n = static_cast<size_t>(request.rows.size());
    n_floats += n * (config_.full ? n_derivatives() + c.p : stride_);
    n_integers += (n * c.node->layout->lanes + 31) / 32 * 32;
  }
  columns_.reserve(n_floats + 64);
  channels_.reserve(n_integers + 64);
  make_blocks();
  read_rows();
  quantise_nodes();
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].channels = channels_.data() + batch_[i].channels;
    requests[i].totals->assign(batch_[i].totals.begin(), batch_[i].totals.end());
  }
}

void LinearGradients::make_blocks() {
  blocks_.clear();
  for (size_t i = 0; i < batch_.size(); ++i) {
    const int64_t rows = batch_[i].request->rows.size();
    for (int64_t b = 0; b < rows; b += kRowBlock) {
      RowBlock& block = blocks_.add();
      block.of = i;
      block.begin = b;
      block.n = std::min(kRowBlock, rows - b);
    }
  }
}

// Copy derivatives and regressors of the nodes' rows, contiguous, and find their largest
// magnitudes.
void LinearGradients::read_rows() {
  const auto clear = [&](auto& of, int p) {
    of.largest.assign(stride_, 0.0f);
    of.range.clear();
    for (int j = 0; j < p; ++j) of.range.insert(of.range.end(), {kInfinity, -kInfinity});
  };
  parallel_for(context_, static_cast<int64_t>(blocks_.size()), [&](int64_t task, int) {
    RowBlock& block = blocks_[task];
    const Columns& c = batch_[block.of];
    clear(block, c.p);
    read_block(c, block.begin, block.n, block.largest.data(), block.range.data());
  });
  for (size_t i = 0; i < batch_.size(); ++i) clear(batch_[i], batch_[i].p);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const RowBlock& block = blocks_[i];
    Columns& c = batch_[block.of];
    for (size_t j = 0; j < c.largest.size(); ++j)
      c.largest[j] = std::max(c.largest[j], block.largest[j]);
    for (size_t j = 0; j < c.range.size(); j += 2) {
      c.range[j] = std::min(c.range[j], block.range[j]);
      c.range[j + 1] = std::max(c.range[j + 1], block.range[j + 1]);
    }
  }
  allreduce_ranges();
}

// Reduce over all ranks.
void LinearGradients::allreduce_ranges() {
  if (!context_.is_distributed()) return;
  std::vector<double> largest;
  for (size_t i = 0; i < batch_.size(); ++i) {
    const Columns& c = batch_[i];
    largest.insert(largest.end(), c.largest.begin(), c.largest.end());
    for (size_t j = 0; j < c.range.size(); ++j)
      largest.push_back(j % 2 == 0 ? -c.range[j] : c.range[j]);
  }
  context_.allreduce_max(largest);
  const double* next = largest.data();
  for (size_t i = 0; i < batch_.size(); ++i) {
    for (float& magnitude : batch_[i].largest) magnitude = static_cast<float>(*next++);
    for (size_t j = 0; j < batch_[i].range.size(); ++j, ++next)
      batch_[i].range[j] = static_cast<float>(j % 2 == 0 ? -*next : *next);
  }
}

void LinearGradients::read_block(const Columns& c, int64_t begin, int64_t n, float* largest,
                                 float* range) {
  if (config_.full) return read_columns(c, begin, n, largest, range);
  return is_narrow() ? read_narrow(c, begin, n, largest, range) : read_many(c, begin, n, largest);
}

CodeTable LinearGradients::look_up(const Columns& c, int32_t feature, int64_t begin, int64_t n,
                                   const float* number, uint64_t* room) const {
  const HostRowPartitioner& partition = tree_->partition();
  const Bins& bins = partition.bins();
  return {partition.words(c.request->rows, bins.tile_index(feature), begin, n, room),
          8 * bins.slot_index(feature), number};
}

void LinearGradients::read_narrow(const Columns& c, int64_t begin, int64_t n, float* largest,
                                  float* range) {
  const RowRange& rows = c.request->rows;
  const uint32_t* ids = tree_->partition().ids(rows);
  const Node& node = *c.node;
  FittedUpdate update{};
  uint64_t room[kRowBlock + 8];
  if (c.p > 0) update = {look_up(c, node.feature, begin, n, node.number, room), node.factor};
  float least[4] = {kInfinity, kInfinity, kInfinity, kInfinity}, most[4];
  for (int j = 0; j < 4; ++j) most[j] = -kInfinity;
  POLYLEAF_SELECT(linear_gradient_kernels)
      .read_narrow(rows_.data(), ids != nullptr ? ids + begin : nullptr, rows.begin + begin, n,
                   c.p > 0 ? &update : nullptr, columns_.data() + c.at + 4 * begin, least, most);
  for (int j = 0; j < n_derivatives(); ++j)
    largest[j] = std::max(std::fabs(least[j]), std::fabs(most[j]));
  if (c.p == 0) return;
  range[0] = least[2];
  range[1] = most[2];
}

void LinearGradients::read_many(const Columns& c, int64_t begin, int64_t n, float* largest) {
  const RowRange& rows = c.request->rows;
  const uint32_t* ids = tree_->partition().ids(rows);
  const Node& node = *c.node;
  FittedStep step{};
  uint64_t room[kRowBlock + 8];
  if (node.feature >= 0)
    step = {look_up(c, node.feature, begin, n, node.number, room), missing_code(node.feature),
            node.middle.data(), node.slope.data()};
  POLYLEAF_SELECT(linear_gradient_kernels)
      .read_many(rows_.data(), stride_, n_outputs_, n_hessian(),
                 ids != nullptr ? ids + begin : nullptr, rows.begin + begin, n,
                 node.feature >= 0 ? &step : nullptr, columns_.data() + c.at + begin * stride_,
                 largest);
}

void LinearGradients::read_columns(const Columns& c, int64_t begin, int64_t n, float* largest,
                                   float* range) {
  const LinearGradientKernels& kernels = POLYLEAF_SELECT(linear_gradient_kernels);
  const RowRange& rows = c.request->rows;
  const uint32_t* ids = tree_->partition().ids(rows);
  float* out = columns_.data() + c.at + begin;
  uint64_t room[kRowBlock + 8];
  kernels.gather(rows_.data(), stride_, ids != nullptr ? ids + begin : nullptr, rows.begin + begin,
                 n, n_derivatives(), rows.size(), out, largest);
  for (int j = 0; j < c.p; ++j) {
    const int32_t f = c.node->regressors[j];
    float* z = out + (n_derivatives() + j) * rows.size();
    float means[CodeTable::kSize];
    std::copy_n(table_.means(f), CodeTable::kSize, means);
    means[missing_code(f)] = std::numeric_limits<float>::quiet_NaN();
    kernels.look_up(look_up(c, f, begin, n, means, room), n, z);
    kernels.range(z, n, range + 2 * j);
  }
}

// Set the scales of a node's channels: a product's from those of its factors, so that no sum
// overflows int32.
void LinearGradients::set_scales(Columns& c) {
  Node& node = *c.node;
  const ChannelLayout& layout = *node.layout;
  const int K = n_outputs_;
  float z[kMaxRegressors];
  for (int j = 0; j < c.p; ++j) {
    float* range = c.range.data() + 2 * j;
    if (range[0] > range[1]) range[0] = range[1] = 0;  // all missing
    const float middle = 0.5f * (range[0] + range[1]);
    z[j] = std::max(std::fabs(range[0] - middle), std::fabs(range[1] - middle));
    range[0] = middle;
  }
  const float h = n_hessian() > 0 ? c.largest[K] : 1.0f;
  const int shift = count_shift(c.request->count);
  LinearScan& scan = node.scan;
  scan.step.assign(layout.lanes + 16, 0.0f);
  c.inverse.assign(layout.lanes + 16, 0.0f);
  const auto set = [&](int lane, float largest) {
    set_scale(largest, shift, c.inverse[lane], scan.step[lane]);
  };
  for (int k = 0; k < n_derivatives(); ++k) set(k, c.largest[k]);
  for (int i = 0; i < c.p; ++i) {
    set(layout.first_product() + i, h * z[i]);
    for (int j = 0; j <= i; ++j) set(layout.second_moments() + packed(i, j), (h * z[i]) * z[j]);
    for (int k = 0; k < K; ++k) set(layout.gradient_products() + i * K + k, c.largest[k] * z[i]);
  }
  if (layout.count_lane >= 0) c.inverse[layout.count_lane] = 1.0f;
  node.gradient_step.assign(scan.step.begin(), scan.step.begin() + K);
  node.gradient_step.resize(K + 16, 0.0f);
  node.hessian_step.assign(scan.step.begin() + K, scan.step.begin() + n_derivatives());
  node.hessian_step.resize(n_hessian() + 16, 0.0f);
  scan.table = &table_;
  scan.slope_ridge = config_.linear_lambda;
  scan.ridge.assign(c.p + 1, config_.linear_lambda * (config_.full ? 1.0 : node.norm));
  scan.noise.clear();
  for (int i = 0; i < c.p; ++i)
    scan.noise.push_back(0.5 *
                         static_cast<double>(scan.step[layout.second_moments() + packed(i, i)]));
  const bool room = static_cast<int>(node.regressors.size()) < config_.max_regressors;
  scan.joins.assign(table_.n_features(), 0);
  if (room)
    for (int f = 0; f < table_.n_features(); ++f) scan.joins[f] = table_.is_regressor(f);
  for (int32_t f : node.regressors) scan.joins[f] = !config_.full;
}

// Return the products of columns of each lane of a node with p regressors.
std::vector<LaneProduct> LinearGradients::lane_products(int p) const {
  const int K = n_outputs_, h = K, z = n_derivatives();
  const bool unit = n_hessian() == 0;
  std::vector<LaneProduct> lanes;
  for (int k = 0; k < n_derivatives(); ++k) lanes.push_back({k, -1, -1});
  for (int a = 0; a < p; ++a)
    lanes.push_back(unit ? LaneProduct{z + a, -1, -1} : LaneProduct{h, z + a, -1});
  for (int a = 0; a < p; ++a)
    for (int b = 0; b <= a; ++b)
      lanes.push_back(unit ? LaneProduct{z + a, z + b, -1} : LaneProduct{h, z + a, z + b});
  for (int a = 0; a < p; ++a)
    for (int k = 0; k < K; ++k) lanes.push_back({k, z + a, -1});
  return lanes;
}

// Quantise rows [begin, begin + n) of a request.
void LinearGradients::fill_channels(const Columns& c, int64_t begin, int64_t n, int64_t* totals) {
  const LinearGradientKernels& kernels = POLYLEAF_SELECT(linear_gradient_kernels);
  const ChannelLayout& layout = *c.node->layout;
  int16_t* out = channels_.data() + c.channels + begin * layout.lanes;
  float* rows = columns_.data() + c.at + begin * stride_;
  if (is_narrow())
    return kernels.quantise_narrow(rows, n, c.p, n_hessian() == 0, c.p > 0 ? c.range[0] : 0.0f,
                                   c.inverse.data(), out, totals);
  if (!config_.full)
    return kernels.quantise_many(rows, n, stride_, c.inverse.data(), layout.count_lane,
                                 layout.lanes, out, totals);
  std::vector<const float*> at;
  for (int j = 0; j < n_derivatives() + c.p; ++j) {
    float* column = columns_.data() + c.at + j * c.request->rows.size() + begin;
    if (j >= n_derivatives()) kernels.centre(column, n, c.range[2 * (j - n_derivatives())]);
    at.push_back(column);
  }
  const std::vector<LaneProduct> products = lane_products(c.p);
  kernels.quantise(at.data(), n, products.data(), static_cast<int>(products.size()),
                   c.inverse.data(), layout.count_lane, layout.lanes, out, totals);
}

void LinearGradients::quantise_nodes() {
  for (size_t i = 0; i < batch_.size(); ++i) {
    set_scales(batch_[i]);
    batch_[i].totals.assign(batch_[i].node->layout->lanes + 16, 0);
  }
  parallel_for(context_, static_cast<int64_t>(blocks_.size()), [&](int64_t task, int) {
    RowBlock& block = blocks_[task];
    const Columns& c = batch_[block.of];
    block.totals.assign(c.node->layout->lanes, 0);
    fill_channels(c, block.begin, block.n, block.totals.data());
  });
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const RowBlock& block = blocks_[i];
    for (size_t j = 0; j < block.totals.size(); ++j) batch_[block.of].totals[j] += block.totals[j];
  }
  allreduce_totals();
  for (size_t i = 0; i < batch_.size(); ++i) {
    const int count_lane = batch_[i].node->layout->count_lane;
    if (count_lane >= 0) batch_[i].totals[count_lane] = batch_[i].request->count;
  }
}

// Sum over all ranks.
void LinearGradients::allreduce_totals() {
  if (!context_.is_distributed()) return;
  std::vector<int64_t> sums;
  for (size_t i = 0; i < batch_.size(); ++i)
    sums.insert(sums.end(), batch_[i].totals.begin(), batch_[i].totals.end());
  context_.allreduce_sum(sums);
  auto next = sums.begin();
  for (size_t i = 0; i < batch_.size(); ++i)
    for (int64_t& total : batch_[i].totals) total = *next++;
}

// Set the sums of one side of the split.
void LinearGradients::set_side(int side, const TileSplit& split, const ScanNode& node) {
  const ChannelLayout& layout = *node.layout;
  Side& s = sides_[side];
  s.all.resize(layout.lanes + 16);
  for (int j = 0; j < layout.lanes; ++j)
    s.all[j] = side == 0 ? split.left[j] : node.totals[j] - split.left[j];
  s.there = s.all;
  if ((side == 0) == split.missing_left)
    for (int j = 0; j < layout.lanes; ++j) s.there[j] -= split.absent[j];
  s.products = split.left_products;
  if (side == 1)
    for (size_t q = 0; q < s.products.size(); ++q)
      s.products[q] = split.products[q] - s.products[q];
}

void LinearGradients::split(int32_t parent, const TileSplit& split, const ScanNode& node,
                            const SearchNode&, const SearchNode&, float* output_gain) {
  const LinearKernels& kernels = POLYLEAF_SELECT(linear_kernels);
  const int K = n_outputs_, p = node.layout->regressors;
  for (Side& s : sides_) {
    s.slopes.assign(static_cast<size_t>(p + 1) * K, 0.0);
    s.middle.assign(K, 0.0);
    s.terms.assign(K, 0.0);
  }
  const int32_t count[2] = {split.left_count, node.count - split.left_count};
  for (int side = 0; side < 2; ++side) {
    set_side(side, split, node);
    Side& s = sides_[side];
    const int32_t n_absent = (side == 0) == split.missing_left ? split.n_absent : 0;
    kernels.solve(node, s.all.data(), count[side], s.there.data(), count[side] - n_absent,
                  s.products.empty() ? nullptr : s.products.data(), s.slopes.data(),
                  s.middle.data(), s.terms.data());
  }
  Side& whole = sides_[2];
  kernels.solve(node, node.totals, node.count, node.totals, 0, nullptr, nullptr,
                whole.middle.data(), whole.terms.data());
  for (int k = 0; k < K; ++k)
    output_gain[k] =
        static_cast<float>(0.5 * ((sides_[0].terms[k] + sides_[1].terms[k]) - whole.terms[k]));
  for (int side = 0; side < 2; ++side)
    make_child(nodes_[parent], split, sides_[side].slopes.data(), sides_[side].middle.data(),
               nodes_.add());
}

void LinearGradients::make_child(const Node& parent, const TileSplit& split, const double* slopes,
                                 const double* middle, Node& child) const {
  const int32_t f = split.feature;
  child.start();
  child.regressors = parent.regressors;
  const bool known =
      std::find(parent.regressors.begin(), parent.regressors.end(), f) != parent.regressors.end();
  if (split.bin >= 0 && table_.is_regressor(f) && !known &&
      static_cast<int32_t>(parent.regressors.size()) < config_.max_regressors)
    child.regressors.push_back(f);
  if (config_.full) return;
  const bool joins = !split.products.empty();
  if (!is_narrow()) {
    if (!joins) return;
    child.feature = f;
    for (int code = 0; code < CodeTable::kSize; ++code)
      child.number[code] = static_cast<float>(table_.means(f)[code]);
    for (int k = 0; k < n_outputs_; ++k) {
      const float slope = static_cast<float>(slopes[k]);
      child.middle.push_back(static_cast<float>(middle[k]));
      child.slope.push_back(std::isfinite(slope) ? slope : 0.0f);
    }
    for (std::vector<float>* readable : {&child.middle, &child.slope})
      readable->resize((n_outputs_ + 15) / 16 * 16);
    return;
  }
  const double slope = joins ? slopes[0] : 0.0;
  const double factor = parent.layout->regressors > 0 ? slopes[1] : 0.0;
  child.norm = slope * slope + (factor * factor) * parent.norm;
  if (!(child.norm > 0)) {
    child.norm = 0;
    return;
  }
  child.feature = f;
  child.factor = static_cast<float>(factor);
  for (int code = 0; code < CodeTable::kSize; ++code)
    child.number[code] = joins ? static_cast<float>(slope * table_.means(f)[code]) : 0.0f;
  if (joins) child.number[missing_code(f)] = static_cast<float>(slope * middle[0]);
}

}  // namespace polyleaf
