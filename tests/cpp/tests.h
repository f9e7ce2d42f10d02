// Test functions, one file per part.
#pragma once

namespace polyleaf::tests {

void test_parallel();
void test_growing();
void test_counts_are_not_ranges();
void test_packed_sums();
void test_packed_counts();
void test_orders();
void test_words();
void test_invalid_input();
void test_objectives();
void test_leaves();
void test_sketches();
void test_linear();
void test_sparse();
void test_label_text();
void test_model();

}  // namespace polyleaf::tests
