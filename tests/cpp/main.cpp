// C++ tests of the core for the sanitizers (scripts/sanitize): they exercise the memory and threads
// of every part. Correctness is tested in Python against tests/reference/; here results are only
// compared between thread counts.
#include <cstdio>

#include "tests.h"

int main() {
  using namespace polyleaf::tests;
  test_parallel();
  test_growing();
  test_counts_are_not_ranges();
  test_packed_sums();
  test_packed_counts();
  test_orders();
  test_words();
  test_invalid_input();
  test_leaves();
  test_objectives();
  test_sketches();
  test_linear();
  test_sparse();
  test_label_text();
  std::puts("core tests passed");
}
