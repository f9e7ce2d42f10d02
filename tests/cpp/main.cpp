// The core's own tests, for the sanitizers (scripts/sanitize): they drive every part through its
// memory and threads. That results are right is what the Python tests against tests/reference/
// show; here results are only compared between thread counts and with what can be said in a line.
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
  test_refusals();
  test_leaves();
  test_objectives();
  test_sketches();
  test_linear();
  test_sparse();
  test_label_text();
  std::puts("core tests passed");
}
