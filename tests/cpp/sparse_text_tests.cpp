// Text rows survive a round trip, and no prefix of a row is read past its end.
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "data/xmc_text.h"
#include "tests.h"

namespace polyleaf::tests {

void test_label_text() {
  std::string text;
  for (int i = 0; i < 40000; ++i)
    text += std::to_string(i % 7) + "," + std::to_string(7 + i % 5) + " 31:" + std::to_string(i) +
            ".5 2:-1e-3\n";
  for (int n_threads : {1, 3}) {
    const auto size = static_cast<int64_t>(text.size());
    const TextRows rows =
        read_xmc_text(text.data(), size, RowSyntax::labelled, {32, 12}, 1, n_threads);
    CHECK(rows.indptr.size() == 40001 && rows.indptr.back() == 80000 &&
          rows.label_indptr.back() == 80000);
    CHECK(rows.indices[0] == 2 && rows.indices[1] == 31 && rows.values[79999] == 39999.5f);
    const std::string again =
        write_xmc_text({40000, rows.label_indptr.data(), rows.labels.data(), rows.indptr.data(),
                        rows.indices.data(), rows.values.data(), 0});
    const TextRows back = read_xmc_text(again.data(), static_cast<int64_t>(again.size()),
                                        RowSyntax::labelled, {32, 12}, 1, n_threads);
    CHECK(back.values == rows.values && back.indices == rows.indices && back.labels == rows.labels);
    bool is_rejected = false;
    try {
      read_xmc_text(text.data(), size, RowSyntax::labelled, {31, 12}, 1, n_threads);
    } catch (const std::invalid_argument& error) {
      is_rejected = std::string(error.what()).rfind("line 1: feature 31", 0) == 0;
    }
    CHECK(is_rejected);
  }
  // Parse every prefix of a row.
  const std::string row = "3,17 0:0.5 12:1e-5 7:123456789012345678901234567890";
  for (size_t size = 0; size <= row.size(); ++size) {
    const std::vector<char> part(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(size));
    for (RowSyntax syntax : {RowSyntax::pairs, RowSyntax::labelled}) try {
        read_xmc_text(part.data(), static_cast<int64_t>(size), syntax, {100, 100}, 1, 1);
      } catch (const std::invalid_argument&) {
      }
  }
}

}  // namespace polyleaf::tests
