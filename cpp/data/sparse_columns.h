// Codes of features that have one common code in most rows: only the other entries are stored, so
// that the cost of text features is that of their nonzeros.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/bin_code.h"
#include "base/context.h"

namespace polyleaf {

// One entry that does not hold its feature's common code.
struct SparseEntry {
  uint32_t row;  // of the data; in a node: its position among the node's rows
  uint32_t key;  // index among the sparse features, and the code

  static uint32_t make_key(int64_t number, int code) {
    return static_cast<uint32_t>(number) << 8 | static_cast<uint32_t>(code);
  }
  int32_t number() const { return static_cast<int32_t>(key >> 8); }
  int code() const { return static_cast<int>(key & 255); }
};

// Compressed columns of codes, rows ascending in each.
struct CompressedColumns {
  int64_t n = 0;                      // features, fewer than 2^24
  const int32_t* features = nullptr;  // ascending
  const uint8_t* common = nullptr;    // code of the rows that a column does not store
  const int64_t* begin = nullptr;     // (n + 1,)
  const int32_t* rows = nullptr;
  const uint8_t* codes = nullptr;
};

class SparseColumns {
 public:
  SparseColumns() = default;
  // n_bins: of every feature of the data. Throws std::invalid_argument if columns are malformed.
  SparseColumns(const CompressedColumns& columns, const uint16_t* n_bins, int32_t n_features,
                int64_t n_rows, const Context& context);

  int64_t n_features() const { return static_cast<int64_t>(features_.size()); }
  int32_t feature(int64_t number) const { return features_[number]; }
  int common(int64_t number) const { return common_[number]; }
  int64_t n_rows() const { return n_rows_; }
  size_t n_bytes() const;

  // Entries by feature, then code (255 is missing), then row.
  const SparseEntry* entries() const { return entries_.data(); }
  int64_t n_entries() const { return begin_.empty() ? 0 : begin_.back(); }

  // Begin of each feature's entries, and the end of the last.
  const int64_t* begin() const { return begin_.data(); }

  // Return the keys of one row's entries, ascending.
  std::span<const uint32_t> row_keys(int64_t row) const {
    if (row_begin_.empty()) return {};
    return {keys_.data() + row_begin_[row],
            static_cast<size_t>(row_begin_[row + 1] - row_begin_[row])};
  }
  int code(int64_t number, int64_t row) const;

  // Features that one task handles: indices group_begin(g) .. group_begin(g + 1) - 1.
  int n_groups() const { return static_cast<int>(groups_.size()) - 1; }
  int64_t group_begin(int g) const { return groups_[g]; }

 private:
  void check(const CompressedColumns& columns, int64_t number, int n_bins, int64_t n_rows) const;
  void sort(const CompressedColumns& columns, int64_t number);
  void list_by_row(const Context& context);

  int64_t n_rows_ = 0;
  std::vector<int32_t> features_;
  std::vector<uint8_t> common_;
  std::vector<int64_t> begin_;  // of each feature, in entries_
  std::vector<int64_t> groups_ = {0};
  Buffer<SparseEntry> entries_;
  std::vector<int64_t> row_begin_;  // of each row, in keys_
  Buffer<uint32_t> keys_;
};

}  // namespace polyleaf
