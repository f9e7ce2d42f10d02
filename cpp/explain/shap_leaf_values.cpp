#include "explain/shap_leaf_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace polyleaf {
namespace {

double get_scale(const OutputChunk& chunk, int32_t position) {
  return chunk.scale == nullptr ? 1.0 : chunk.scale[position];
}

float clip_to_float(double value) {
  constexpr double largest = std::numeric_limits<float>::max();
  return static_cast<float>(std::min(std::max(value, -largest), largest));
}

}  // namespace

void LeafSlots::add_leaf(const std::vector<int32_t>& term_slots) {
  POLYLEAF_DCHECK(terms.empty());
  first.push_back(static_cast<int32_t>(slots.size()));
  slots.insert(slots.end(), term_slots.begin(), term_slots.end());
}

void LeafSlots::sort(const LeafShapCoefficients& shap_coefficients, int32_t n_slots) {
  std::vector<int32_t> next(n_slots + 1,
                            0);  // first counts, then the position of a slot's next term
  for (int32_t slot : slots) ++next[slot + 1];
  for (int32_t slot = 0; slot < n_slots; ++slot) {
    next[slot + 1] += next[slot];
    if (next[slot + 1] == next[slot]) continue;
    occurring.push_back(slot);
    begin.push_back(next[slot]);
  }
  begin.push_back(static_cast<int32_t>(slots.size()));
  terms.resize(slots.size());
  for (int32_t l = 0; l < static_cast<int32_t>(first.size()); ++l)
    for (int32_t t = 0; t < shap_coefficients.n_terms(l); ++t)
      terms[next[slots[first[l] + t]]++] = {shap_coefficients.first_row(l) + t, l};
}

ShapLeafValues::ShapLeafValues(const LeafPaths& paths, const LeafView& leaves, int32_t output,
                               int32_t column, const OutputChunk& chunk,
                               const std::vector<double>& centre)
    : paths_(paths), lists_outputs_(leaves.kind->lists_outputs), output_(output), column_(column) {
  if (output < 0) {
    n_columns_ = chunk.n;
  } else if (chunk.output_position[output] >= 0) {
    n_columns_ = 1;
    position_ = chunk.output_position[output];
  }
  if (n_columns_ == 0) return;
  if (lists_outputs_)
    read_listed(leaves, chunk);
  else
    read_vectors(leaves, chunk, centre);
}

void ShapLeafValues::read_listed(const LeafView& leaves, const OutputChunk& chunk) {
  std::vector<float> values;
  for (const LeafPath& path : paths_.leaves) {
    entry_begin_.push_back(static_cast<int64_t>(values.size()));
    const LeafFunction leaf = leaves.kind->function(leaves, path.leaf);
    for (int64_t i = 0; i < leaf.n_values; ++i) {
      const int32_t position = chunk.output_position[leaf.outputs[i]];
      if (position < 0) continue;
      positions_.push_back(position);
      values.push_back(clip_to_float(double{leaf.values[i]} * get_scale(chunk, position)));
    }
  }
  entry_begin_.push_back(static_cast<int64_t>(values.size()));
  values_.reserve(values.size());
  std::copy(values.begin(), values.end(), values_.data());
}

void ShapLeafValues::read_vectors(const LeafView& leaves, const OutputChunk& chunk,
                                  const std::vector<double>& centre) {
  const size_t size = paths_.leaves.size() * n_columns_;
  values_.reserve(size);
  if (leaves.kind->reads_features) {
    for (Buffer<float>* buffer : {&intercept_, &lower_, &upper_}) buffer->reserve(size);
    weights_.reserve(paths_.regressors.size() * n_columns_);
  }
  float* weight = weights_.data();
  size_t at = 0;
  for (const LeafPath& path : paths_.leaves) {
    const LeafFunction leaf = leaves.kind->function(leaves, path.leaf);
    for (int32_t k = 0; k < n_columns_; ++k, ++at) {
      const int64_t from = column(chunk, k);
      const double scale = get_scale(chunk, position_ + k);
      values_[at] = clip_to_float((leaf.value_at_centre(from) - centre[k]) * scale);
      if (!leaves.kind->reads_features) continue;
      const double lower = leaf.lower[from], upper = leaf.upper[from];
      intercept_[at] = clip_to_float(double{leaf.values[from]} * scale);
      lower_[at] = clip_to_float(scale < 0.0 ? upper * scale : lower * scale);
      upper_[at] = clip_to_float(scale < 0.0 ? lower * scale : upper * scale);
    }
    for (int64_t e = 0; e < leaf.n_regressors; ++e) {
      centre_.push_back(leaf.centre[e]);
      for (int32_t k = 0; k < n_columns_; ++k)
        *weight++ = clip_to_float(double{leaf.weights[e * leaf.stride + column(chunk, k)]} *
                                  get_scale(chunk, position_ + k));
    }
  }
}

void ShapLeafValues::add(const LeafSlots& slots, const float* coefficients,
                         const ShapTile& tile) const {
  if (n_columns_ == 0) return;
  POLYLEAF_DCHECK(tile.n_rows % kRowStep == 0);
  const ShapKernels& kernels = POLYLEAF_SELECT(shap_kernels);
  if (!lists_outputs_) {
    for (size_t i = 0; i < slots.occurring.size(); ++i)
      kernels.add_terms(slots.terms.data() + slots.begin[i], slots.begin[i + 1] - slots.begin[i],
                        coefficients, values_.data(), n_columns_, n_columns_, tile.n_rows,
                        tile.at(slots.occurring[i], position_));
    return;
  }
  for (size_t i = 0; i < slots.occurring.size(); ++i)
    for (int32_t t = slots.begin[i]; t < slots.begin[i + 1]; ++t) {
      const int64_t begin = entry_begin_[slots.terms[t].leaf_value],
                    end = entry_begin_[slots.terms[t].leaf_value + 1];
      kernels.add_entries(coefficients + int64_t{slots.terms[t].coefficients} * kTileRows,
                          positions_.data() + begin, values_.data() + begin,
                          static_cast<int32_t>(end - begin), tile.n_rows,
                          tile.at(slots.occurring[i], 0));
    }
}

void ShapLeafValues::add_slopes(int32_t l, const LeafShapCoefficients& shap_coefficients,
                                const ShapConfig& config, const LeafSlots& slots, bool pairs,
                                const uint8_t* held, const TileRows& rows, float* coefficients,
                                ShapScratch& scratch, const ShapTile& tile) const {
  const LeafPath& path = paths_.leaves[l];
  if (n_columns_ == 0 || path.n_entries == 0) return;
  const ShapKernels& kernels = POLYLEAF_SELECT(shap_kernels);
  const int32_t terms = shap_coefficients.n_terms(l);
  scratch.shifts.reserve(static_cast<size_t>(path.n_entries) * kTileRows);
  scratch.clipped.reserve(static_cast<size_t>(n_columns_) * kTileRows);
  float* first = coefficients + int64_t{shap_coefficients.first_row(l) + terms} * kTileRows;
  for (int32_t e = 0; e < path.n_entries; ++e) {
    const int32_t feature = paths_.regressors[path.first_entry + e];
    const int32_t column = paths_.columns[path.first + feature];
    float* shifts = scratch.shifts.data() + int64_t{e} * kTileRows;
    kernels.shift(rows.x + int64_t{column} * kTileRows, centre_[path.first_entry + e],
                  held + int64_t{feature} * kTileRows, tile.n_rows, shifts);
    kernels.scale(shifts, terms, tile.n_rows, first + int64_t{e} * terms * kTileRows);
  }
  const size_t at = static_cast<size_t>(l) * n_columns_;
  const LeafSlopes slopes{weights_.data() + static_cast<size_t>(path.first_entry) * n_columns_,
                          intercept_.data() + at,
                          lower_.data() + at,
                          upper_.data() + at,
                          path.n_entries,
                          n_columns_,
                          n_columns_};
  const bool any =
      kernels.find_clipped(slopes, scratch.shifts.data(), tile.n_rows, scratch.clipped.data());
  for (int32_t t = 0; t < terms; ++t)
    kernels.add_slopes(slopes, first + int64_t{t} * kTileRows, int64_t{terms} * kTileRows,
                       scratch.clipped.data(), tile.n_rows,
                       tile.at(slots.slots[slots.first[l] + t], position_));
  if (!any) return;
  const Quadrature& rule = config.quadrature(path.n_features);
  add_clipped(l,
              {path.n_features, static_cast<int32_t>(rule.at.size()),
               paths_.shares.data() + path.first, rule.at.data(), rule.weight.data(), pairs},
              slots, held, rows, scratch, tile);
}

void ShapLeafValues::add_clipped(int32_t l, const PathProduct& product, const LeafSlots& slots,
                                 const uint8_t* held, const TileRows& rows, ShapScratch& scratch,
                                 const ShapTile& tile) const {
  const LeafPath& path = paths_.leaves[l];
  const uint8_t* clipped = scratch.clipped.data();
  std::array<uint8_t, kTileRows> any{};
  for (int32_t k = 0; k < n_columns_; ++k)
    for (int r = 0; r < rows.n_rows; ++r) any[r] |= clipped[int64_t{k} * kTileRows + r];
  std::vector<uint8_t> row_holds(path.n_features);
  std::vector<int32_t> regressors, entries;
  ClippedLinearFunction leaf_value{};
  for (int r = 0; r < rows.n_rows; ++r) {
    if (any[r] == 0) continue;
    const auto shift = [&](int32_t e) {
      return double{scratch.shifts[static_cast<size_t>(e) * kTileRows + r]};
    };
    for (int32_t j = 0; j < path.n_features; ++j) row_holds[j] = held[int64_t{j} * kTileRows + r];
    regressors.clear();
    entries.clear();
    for (int32_t e = 0; e < path.n_entries; ++e) {
      if (shift(e) == 0.0) continue;
      entries.push_back(e);
      regressors.push_back(paths_.regressors[path.first_entry + e]);
    }
    scratch.slopes.set_row(product, row_holds, regressors);
    for (int32_t k = 0; k < n_columns_; ++k) {
      if (clipped[int64_t{k} * kTileRows + r] == 0) continue;
      const size_t at = static_cast<size_t>(l) * n_columns_ + k;
      leaf_value.intercept = intercept_[at], leaf_value.lower = lower_[at],
      leaf_value.upper = upper_[at];
      leaf_value.slopes.clear();
      for (int32_t e : entries)
        leaf_value.slopes.push_back(
            shift(e) * weights_[static_cast<size_t>(path.first_entry + e) * n_columns_ + k]);
      scratch.slopes.find(leaf_value, scratch.contributions);
      for (size_t t = 0; t < scratch.contributions.size(); ++t)
        tile.at(slots.slots[slots.first[l] + t], position_ + k)[r] +=
            static_cast<float>(scratch.contributions[t]);
    }
  }
}

void ShapLeafValues::add_interventional(int32_t l, const LinearBackground& background,
                                        const ShapConfig& config, const LeafSlots& slots,
                                        bool pairs, const uint8_t* held, const TileRows& rows,
                                        ShapScratch& scratch, const ShapTile& tile) const {
  const LeafPath& path = paths_.leaves[l];
  if (n_columns_ == 0 || path.n_features == 0) return;
  const size_t at = static_cast<size_t>(l) * n_columns_;
  const InterventionalLeaf leaf{
      path.n_features,
      path.n_entries,
      n_columns_,
      paths_.regressors.data() + path.first_entry,
      centre_.data() + path.first_entry,
      weights_.data() + static_cast<size_t>(path.first_entry) * n_columns_,
      intercept_.data() + at,
      lower_.data() + at,
      upper_.data() + at,
      n_columns_};
  const int32_t terms = n_terms(path.n_features, pairs);
  const double share = 1.0 / static_cast<double>(background.n_rows);
  std::vector<double> shifts(path.n_entries);
  for (int r = 0; r < rows.n_rows; ++r) {
    for (int32_t e = 0; e < path.n_entries; ++e) {
      const int32_t column = paths_.columns[path.first + leaf.regressors[e]];
      const float x = rows.x[int64_t{column} * kTileRows + r];
      shifts[e] = std::isnan(x) ? 0.0 : double{x} - double{leaf.centre[e]};
    }
    const LeafRow explained{get_pattern(held, path.n_features, r), shifts.data()};
    scratch.contributions.assign(static_cast<size_t>(terms) * n_columns_, 0.0);
    for (int64_t b = 0; b < background.n_rows; ++b)
      scratch.interventional.add(
          leaf, explained,
          {background.patterns[l][b], background.shifts[l].data() + b * path.n_entries}, share,
          pairs, *config.weights, scratch.contributions.data());
    for (int32_t t = 0; t < terms; ++t)
      for (int32_t k = 0; k < n_columns_; ++k)
        tile.at(slots.slots[slots.first[l] + t], position_ + k)[r] +=
            static_cast<float>(scratch.contributions[static_cast<size_t>(t) * n_columns_ + k]);
  }
}

}  // namespace polyleaf
