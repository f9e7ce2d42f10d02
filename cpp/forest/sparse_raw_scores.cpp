#include "forest/sparse_raw_scores.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/parallel.h"
#include "forest/ranking.h"

namespace polyleaf {
namespace {

constexpr int64_t kChunk = 1024;  // entries per derivative computation

[[noreturn]] void reject(const std::string& what) {
  throw std::invalid_argument("The sparse rows are not valid: " + what + ".");
}

std::string describe_row(int64_t row, const std::string& what) {
  return "row " + std::to_string(row) + " " + what;
}

// Make a block of rows [first, first + n) of CSR arrays; `indptr` has been checked.
SparseRows::Block make_block(const int64_t* indptr, const int32_t* outputs, const float* values,
                             int64_t first, int64_t n, int64_t n_outputs) {
  auto pattern = std::make_shared<SparsePattern>();
  const int64_t from = indptr[first], size = indptr[first + n] - from;
  pattern->begin.resize(static_cast<size_t>(n) + 1);
  pattern->outputs.reserve(static_cast<size_t>(size));
  SparseRows::Block block;
  block.values.reserve(static_cast<size_t>(size));
  for (int64_t r = 0; r <= n; ++r) pattern->begin[r] = indptr[first + r] - from;
  for (int64_t r = 0; r < n; ++r)
    for (int64_t e = indptr[first + r]; e < indptr[first + r + 1]; ++e) {
      if (outputs[e] < 0 || outputs[e] >= n_outputs)
        reject(describe_row(first + r, "has the output " + std::to_string(outputs[e]) +
                                           ", outside 0 .. " + std::to_string(n_outputs - 1)));
      if (e > indptr[first + r] && outputs[e - 1] >= outputs[e])
        reject(describe_row(first + r, "does not have its outputs in ascending order"));
      const float value = values != nullptr ? values[e] : 1.0f;
      if (!std::isfinite(value))
        reject(describe_row(first + r, "holds a number that is not finite"));
      pattern->outputs[e - from] = outputs[e];
      block.values[e - from] = value;
    }
  block.pattern = std::move(pattern);
  return block;
}

// Rows merged with the leaf values they receive: the raw score of each output.
struct MergedRow {
  Buffer<int32_t> outputs;
  Buffer<float> raw;
  int64_t n = 0;

  void reserve(int64_t size) {
    outputs.reserve(static_cast<size_t>(size));
    raw.reserve(static_cast<size_t>(size));
    n = 0;
  }
  void put(int32_t output, float raw_score) {
    outputs[n] = output;
    raw[n] = raw_score;
    ++n;
  }
  // `target_entries`: ascending entries of the row; they are replaced by their new positions.
  void merge(const SparseRow& row, const int32_t* outputs_in, const float* values, int64_t n_in,
             std::span<int64_t> target_entries, int64_t row_begin) {
    int64_t a = 0, b = 0;
    size_t m = 0;
    const auto keep = [&](float value) {
      if (m < target_entries.size() && target_entries[m] == row_begin + a) target_entries[m++] = n;
      put(row.outputs[a++], value);
    };
    while (a < row.n && b < n_in) {
      if (row.outputs[a] < outputs_in[b]) {
        keep(row.values[a]);
      } else if (outputs_in[b] < row.outputs[a]) {
        put(outputs_in[b], 0.0f + values[b]);
        ++b;
      } else {
        keep(row.values[a] + values[b]);
        ++b;
      }
    }
    while (a < row.n) keep(row.values[a]);
    for (; b < n_in; ++b) put(outputs_in[b], 0.0f + values[b]);
  }
};

}  // namespace

SparseRows make_sparse_rows(const int64_t* indptr, const int32_t* outputs, const float* values,
                            int64_t n_rows, int64_t n_entries, int64_t n_outputs,
                            const Context& context) {
  if (indptr[0] != 0 || indptr[n_rows] != n_entries)
    reject("indptr must run from 0 to the number of entries, " + std::to_string(n_entries));
  for (int64_t i = 0; i < n_rows; ++i)
    if (indptr[i] > indptr[i + 1])
      reject(describe_row(i, "ends before it begins: indptr must ascend"));
  SparseRows rows(n_rows, n_outputs);
  parallel_for(context, rows.n_blocks(), [&](int64_t task, int) {
    const Block block(n_rows, kSparseBlockRows, task);
    rows.block(task) =
        make_block(indptr, outputs, values, block.begin, block.end - block.begin, n_outputs);
  });
  return rows;
}

SparseRawScores::SparseRawScores(int64_t n_rows, int64_t n_outputs) : raw_(n_rows, n_outputs) {
  for (int64_t b = 0; b < raw_.n_blocks(); ++b) {
    const Block block(n_rows, kSparseBlockRows, b);
    auto pattern = std::make_shared<SparsePattern>();
    pattern->begin.assign(static_cast<size_t>(block.end - block.begin) + 1, 0);
    raw_.block(b).pattern = std::move(pattern);
  }
}

SparseRawScores::SparseRawScores(const SparseRows& targets, const Context& context)
    : raw_(targets.n_rows(), targets.n_outputs()),
      targets_(static_cast<size_t>(targets.n_blocks())) {
  parallel_for(context, targets.n_blocks(), [&](int64_t b, int) {
    const SparseRows::Block& from = targets.block(b);
    const size_t size = static_cast<size_t>(from.pattern->n_entries());
    raw_.block(b).pattern = from.pattern;
    raw_.block(b).values.reserve(size);
    std::fill_n(raw_.block(b).values.data(), size, 0.0f);
    for (size_t e = 0; e < size; ++e) {
      if (from.values[e] == 0.0f) continue;
      targets_[b].at.push_back(static_cast<int64_t>(e));
      targets_[b].values.push_back(from.values[e]);
    }
  });
}

void SparseRawScores::add(const int32_t* leaf_of_row, const LeafView& leaves,
                          const Context& context) {
  std::vector<MergedRow> scratch(static_cast<size_t>(context.n_threads));
  parallel_for(context, raw_.n_blocks(), [&](int64_t b, int thread) {
    SparseRows::Block& block = raw_.block(b);
    const SparsePattern& before = *block.pattern;
    const int32_t* leaf = leaf_of_row + b * kSparseBlockRows;
    int64_t max_entries = before.n_entries();
    for (int64_t r = 0; r < before.n_rows(); ++r)
      max_entries += leaves.begin[leaf[r] + 1] - leaves.begin[leaf[r]];
    MergedRow& merged = scratch[thread];
    merged.reserve(max_entries);
    auto pattern = std::make_shared<SparsePattern>();
    pattern->begin.assign(before.begin.size(), 0);
    std::span<int64_t> target_entries;
    if (!targets_.empty()) target_entries = targets_[b].at;
    for (int64_t r = 0; r < before.n_rows(); ++r) {
      const int64_t from = leaves.begin[leaf[r]], at = before.begin[r], end = before.begin[r + 1];
      const auto n_row_targets =
          std::lower_bound(target_entries.begin(), target_entries.end(), end) -
          target_entries.begin();
      merged.merge({end - at, before.outputs.data() + at, block.values.data() + at},
                   leaves.index + from, leaves.values + from, leaves.begin[leaf[r] + 1] - from,
                   target_entries.first(n_row_targets), at);
      target_entries = target_entries.subspan(n_row_targets);
      pattern->begin[r + 1] = merged.n;
    }
    const size_t n = static_cast<size_t>(merged.n);
    if (merged.n > before.n_entries()) {  // otherwise the set of entries is unchanged
      pattern->outputs.reserve(n);
      std::copy_n(merged.outputs.data(), n, pattern->outputs.data());
      block.pattern = std::move(pattern);
      block.values = Buffer<float>(n);
    }
    std::copy_n(merged.raw.data(), n, block.values.data());
  });
}

void SparseRawScores::Targets::write(int64_t first, int64_t n, float* out) const {
  std::fill_n(out, n, 0.0f);
  auto i = static_cast<size_t>(std::lower_bound(at.begin(), at.end(), first) - at.begin());
  for (; i < at.size() && at[i] < first + n; ++i) out[at[i] - first] = values[i];
}

void SparseRawScores::gradients(const Loss& loss, float base, const float* weight, SparseRows& out,
                                const Context& context) const {
  if (targets_.empty() && raw_.n_blocks() > 0)
    throw std::invalid_argument("These sparse scores have no targets.");
  if (out.n_rows() != raw_.n_rows() || out.n_outputs() != raw_.n_outputs())
    out = SparseRows(raw_.n_rows(), raw_.n_outputs());
  const std::vector<float> offset(kChunk, base), parameter(kChunk, 1.0f);
  parallel_for(context, raw_.n_blocks(), [&](int64_t b, int) {
    const SparseRows::Block& block = raw_.block(b);
    SparseRows::Block& to = out.block(b);
    const int64_t n = block.pattern->n_entries();
    to.pattern = block.pattern;
    to.values.reserve(static_cast<size_t>(n));
    float target[kChunk];
    for (int64_t e = 0; e < n; e += kChunk) {
      const int64_t some = std::min(kChunk, n - e);
      targets_[b].write(e, some, target);
      loss.kernels().derivatives(
          loss.params(), {some, block.values.data() + e, target, offset.data(), parameter.data()},
          to.values.data() + e, nullptr);
    }
    if (weight == nullptr) return;
    const std::vector<int64_t>& begin = block.pattern->begin;
    for (int64_t r = 0; r < block.pattern->n_rows(); ++r) {
      const float w = weight[b * kSparseBlockRows + r];
      for (int64_t e = begin[r]; e < begin[r + 1]; ++e) to.values[e] *= w;
    }
  });
}

void SparseRawScores::topk(int32_t k, int32_t* outputs, double* scores,
                           const Context& context) const {
  if (k < 1) throw std::invalid_argument("k must be at least 1, but is " + std::to_string(k) + ".");
  std::vector<Ranking> rankings(static_cast<size_t>(context.n_threads), Ranking(k));
  parallel_for(context, raw_.n_blocks(), [&](int64_t b, int thread) {
    const Block block(raw_.n_rows(), kSparseBlockRows, b);
    for (int64_t i = block.begin; i < block.end; ++i) {
      const SparseRow row = raw_.row(i);
      rankings[thread].offer(row.values, row.outputs, static_cast<int32_t>(row.n), {}, false);
      rankings[thread].take(outputs + i * k, scores + i * k);
    }
  });
}

void compute_row_norms(const SparseRows& rows, float* out, const Context& context) {
  parallel_for(context, rows.n_blocks(), [&](int64_t b, int) {
    const Block block(rows.n_rows(), kSparseBlockRows, b);
    for (int64_t i = block.begin; i < block.end; ++i) {
      const SparseRow row = rows.row(i);
      double sum = 0;
      for (int64_t e = 0; e < row.n; ++e) sum += static_cast<double>(row.values[e]) * row.values[e];
      out[i] = static_cast<float>(std::sqrt(sum));
    }
  });
}

}  // namespace polyleaf
