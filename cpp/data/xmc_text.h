// Text files of sparse rows: the format of the extreme classification repository ("3,17 0:0.5
// 12:1"), and the same without labels.
//
// Reading is strict: a malformed row is an error that names its line. Indices of a row may come in
// any order and are sorted; duplicates are an error. Values are float32 and finite; zeros are
// dropped.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/context.h"

namespace polyleaf {

enum class RowSyntax {
  pairs,     // "0:0.5 12:1"; a blank line is an empty row
  labelled,  // "3,17 0:0.5 12:1"; a line that starts with a space or a pair has no labels
};

struct XmcTextLimits {
  int64_t n_features = INT32_MAX;  // exclusive bound of indices
  int64_t n_labels = INT32_MAX;
};

// Rows in CSR form; labels have no values. indptr start with 0.
struct TextRows {
  std::vector<int64_t> label_indptr, indptr;
  std::vector<int32_t> labels, indices;
  std::vector<float> values;
};

// Parse rows. `first_line`: number of the first line of `text` in its file, for errors. Throws
// std::invalid_argument with "line 17: what is wrong".
TextRows read_xmc_text(const char* text, int64_t size, RowSyntax syntax,
                       const XmcTextLimits& limits, int64_t first_line, const Context& context);

// Return CSR rows as text in the syntax `labelled` (or `pairs`, if labels are nullptr), one line
// each. Values have enough digits to restore the same float32.
struct RowsToWrite {
  int64_t n_rows;
  const int64_t* label_indptr;
  const int32_t* labels;  // nullptr: none
  const int64_t* indptr;
  const int32_t* indices;
  const float* values;
  int32_t index_base = 0;  // index of the first feature
};
std::string write_xmc_text(const RowsToWrite& rows);

}  // namespace polyleaf
