#include "data/sparse_columns.h"

#include <algorithm>
#include <stdexcept>

#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kGroupEntries = 16384;  // minimum of a task
constexpr int64_t kMaxFeatures = int64_t{1} << 24;

}  // namespace

SparseColumns::SparseColumns(const CompressedColumns& columns, const uint16_t* n_bins,
                             int32_t n_features, int64_t n_rows, const Context& context)
    : n_rows_(n_rows),
      features_(columns.features, columns.features + columns.n),
      common_(columns.common, columns.common + columns.n) {
  if (columns.n >= kMaxFeatures) throw std::invalid_argument("There are too many sparse features.");
  begin_.assign(static_cast<size_t>(columns.n) + 1, 0);
  for (int64_t number = 0; number < columns.n; ++number) {
    const int32_t f = features_[number];
    if (f < 0 || f >= n_features || (number > 0 && f <= features_[number - 1]))
      throw std::invalid_argument("Sparse features must be in ascending order.");
    if (common_[number] >= n_bins[f])
      throw std::invalid_argument(
          "The common code of a sparse feature must be below its number of bins.");
    int64_t n = 0;
    for (int64_t i = columns.begin[number]; i < columns.begin[number + 1]; ++i)
      n += columns.codes[i] != common_[number];
    begin_[number + 1] = begin_[number] + n;
    if (begin_[number + 1] - begin_[groups_.back()] >= kGroupEntries || number + 1 == columns.n)
      groups_.push_back(number + 1);
  }
  entries_.reserve(n_entries());
  parallel_for(context, n_groups(), [&](int64_t g, int) {
    for (int64_t number = groups_[g]; number < groups_[g + 1]; ++number) {
      check(columns, number, n_bins[features_[number]], n_rows);
      sort(columns, number);
    }
  });
  list_by_row(context);
}

void SparseColumns::check(const CompressedColumns& columns, int64_t number, int n_bins,
                          int64_t n_rows) const {
  int64_t last_row = -1;
  for (int64_t i = columns.begin[number]; i < columns.begin[number + 1]; ++i) {
    const int64_t row = columns.rows[i];
    if (row <= last_row || row >= n_rows)
      throw std::invalid_argument(
          "Rows of a sparse feature must be in ascending order and below the number of rows.");
    if (columns.codes[i] >= n_bins && columns.codes[i] != kMissingCode)
      throw std::invalid_argument("Feature codes must be below the number of bins of the feature.");
    last_row = row;
  }
}

// Sort the entries of one feature that do not hold its common code by counting codes: rows stay in
// order.
void SparseColumns::sort(const CompressedColumns& columns, int64_t number) {
  int64_t next[257] = {};
  const auto each = [&](const auto& use) {
    for (int64_t i = columns.begin[number]; i < columns.begin[number + 1]; ++i)
      if (columns.codes[i] != common_[number])
        use(static_cast<uint32_t>(columns.rows[i]), columns.codes[i]);
  };
  each([&](uint32_t, int code) { ++next[code + 1]; });
  for (int code = 0; code < 256; ++code) next[code + 1] += next[code];
  each([&](uint32_t row, int code) {
    entries_[begin_[number] + next[code]++] = {row, SparseEntry::make_key(number, code)};
  });
}

// Every thread reads all entries and writes those of its own rows.
void SparseColumns::list_by_row(const Context& context) {
  if (n_entries() == 0) return;
  row_begin_.assign(static_cast<size_t>(n_rows_) + 1, 0);
  keys_.reserve(n_entries());
  for (int64_t e = 0; e < n_entries(); ++e) ++row_begin_[entries_[e].row + 1];
  for (int64_t row = 0; row < n_rows_; ++row) row_begin_[row + 1] += row_begin_[row];
  std::vector<int64_t> next(row_begin_.begin(), row_begin_.end() - 1);
  const int64_t n_blocks = std::min<int64_t>(context.n_threads, n_rows_);
  parallel_for(context, n_blocks, [&](int64_t block, int) {
    const uint64_t first = static_cast<uint64_t>(n_rows_ * block / n_blocks);
    const uint64_t n = static_cast<uint64_t>(n_rows_ * (block + 1) / n_blocks) - first;
    for (int64_t e = 0; e < n_entries(); ++e)
      if (entries_[e].row - first < n) keys_[next[entries_[e].row]++] = entries_[e].key;
  });
}

int SparseColumns::code(int64_t number, int64_t row) const {
  const std::span<const uint32_t> keys = row_keys(row);
  const auto at = std::lower_bound(keys.begin(), keys.end(), SparseEntry::make_key(number, 0));
  return at != keys.end() && *at >> 8 == static_cast<uint32_t>(number) ? static_cast<int>(*at & 255)
                                                                       : common_[number];
}

size_t SparseColumns::n_bytes() const {
  return static_cast<size_t>(n_entries()) * (sizeof(uint32_t) + sizeof(SparseEntry)) +
         row_begin_.size() * sizeof(int64_t);
}

}  // namespace polyleaf
