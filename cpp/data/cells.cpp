#include "data/cells.h"

#include <algorithm>
#include <stdexcept>

#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kGroupEntries = 16384;  // what a task should find to do, at least
constexpr int64_t kMostFeatures = int64_t{1} << 24;

}  // namespace

Cells::Cells(const CellColumns& columns, const uint16_t* n_bins, int32_t n_features, int64_t n_rows,
             const Workers& workers)
    : features_(columns.features, columns.features + columns.n),
      common_(columns.common, columns.common + columns.n) {
  if (columns.n >= kMostFeatures) throw std::invalid_argument("There are too many sparse features.");
  begin_.assign(static_cast<size_t>(columns.n) + 1, 0);
  for (int64_t number = 0; number < columns.n; ++number) {
    const int32_t f = features_[number];
    if (f < 0 || f >= n_features || (number > 0 && f <= features_[number - 1]))
      throw std::invalid_argument("Sparse features must ascend.");
    if (common_[number] >= n_bins[f])
      throw std::invalid_argument("The common code of a sparse feature is not below its number of bins.");
    int64_t n = 0;
    for (int64_t i = columns.begin[number]; i < columns.begin[number + 1]; ++i)
      n += columns.codes[i] != common_[number];
    begin_[number + 1] = begin_[number] + n;
    if (begin_[number + 1] - begin_[groups_.back()] >= kGroupEntries || number + 1 == columns.n)
      groups_.push_back(number + 1);
  }
  rows_.reserve(n_entries());
  codes_.reserve(n_entries());
  entries_.reserve(n_entries());
  parallel_for(workers, n_groups(), [&](int64_t g, int) {
    for (int64_t number = groups_[g]; number < groups_[g + 1]; ++number) {
      take(columns, number, n_bins[features_[number]], n_rows);
      sort(number);
    }
  });
}

// Keeps the cells of one feature that do not hold its common code.
void Cells::take(const CellColumns& columns, int64_t number, int n_bins, int64_t n_rows) {
  int64_t at = begin_[number], last_row = -1;
  for (int64_t i = columns.begin[number]; i < columns.begin[number + 1]; ++i) {
    const int64_t row = columns.rows[i];
    const int code = columns.codes[i];
    if (row <= last_row || row >= n_rows)
      throw std::invalid_argument("Rows of a sparse feature must ascend and be below the number of rows.");
    if (code >= n_bins && code != 255)
      throw std::invalid_argument("A feature code is not below its feature's number of bins.");
    last_row = row;
    if (code == common_[number]) continue;
    rows_[at] = static_cast<uint32_t>(row);
    codes_[at++] = static_cast<uint8_t>(code);
  }
}

// Counting sort by code: rows stay in order.
void Cells::sort(int64_t number) {
  int64_t next[257] = {};
  for (int64_t i = begin_[number]; i < begin_[number + 1]; ++i) ++next[codes_[i] + 1];
  for (int code = 0; code < 256; ++code) next[code + 1] += next[code];
  for (int64_t i = begin_[number]; i < begin_[number + 1]; ++i)
    entries_[begin_[number] + next[codes_[i]]++] = {rows_[i], Cell::key_of(number, codes_[i])};
}

int Cells::code(int64_t number, int64_t row) const {
  const uint32_t* first = rows_.data() + begin_[number];
  const uint32_t* last = rows_.data() + begin_[number + 1];
  const uint32_t* at = std::lower_bound(first, last, static_cast<uint32_t>(row));
  return at != last && *at == row ? codes_[at - rows_.data()] : common_[number];
}

size_t Cells::n_bytes() const {
  return static_cast<size_t>(n_entries()) * (sizeof(uint32_t) + sizeof(uint8_t) + sizeof(Cell));
}

}  // namespace polyleaf
