// C++ tests of the core: they exercise the memory and threads of every part, for the sanitizers
// (scripts/sanitize), and show that other systems compute the same bits (scripts/foreign).
// Correctness is tested in Python against tests/reference/; here results are only compared between
// thread counts.
//
//   polyleaf_core_tests             prints that all have passed
//   polyleaf_core_tests --digest    prints digests of the results: digest.txt holds them
#include <cstdio>
#include <cstring>

#include "digest.h"
#include "tests.h"

int main(int n_arguments, char** arguments) {
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
  test_model();
  if (n_arguments == 2 && std::strcmp(arguments[1], "--digest") == 0)
    for (const auto& [name, digest] : digests())
      std::printf("%s %016llx\n", name.c_str(), static_cast<unsigned long long>(digest.value()));
  else
    std::puts("core tests passed");
}
