// Sketches and sparse products with any number of threads, at odd sizes.
#include <array>
#include <random>
#include <vector>

#include "check.h"
#include "data/sparse_rows.h"
#include "digest.h"
#include "problem.h"
#include "sketch/sketch.h"
#include "tests.h"

namespace polyleaf::tests {

// Odd sizes test the ends of rows, of blocks of rows, and of vectors.
void test_sketches() {
  std::mt19937 random(7);
  const Normal normal;
  for (const auto& [n, k, d] : {std::array{1, 1, 1}, {531, 37, 5}, {2100, 19, 33}, {70, 130, 16}}) {
    std::vector<float> values(static_cast<size_t>(n) * k), matrix(static_cast<size_t>(k) * d);
    for (auto& x : values) x = random() % 3 == 0 ? normal(random) : 0.0f;
    for (auto& x : matrix) x = normal(random);
    std::vector<int64_t> indptr{0};
    std::vector<int32_t> indices, columns(d);
    std::vector<float> stored, scale(d, 2.0f);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < k; ++j)
        if (values[i * k + j] != 0) {
          indices.push_back(j);
          stored.push_back(values[i * k + j]);
        }
      indptr.push_back(static_cast<int64_t>(indices.size()));
    }
    for (auto& c : columns) c = static_cast<int32_t>(random() % k);
    std::vector<float> first;
    for (int n_threads : {1, 3}) {
      std::vector<float> all, out(static_cast<size_t>(n) * d), means(n);
      std::vector<double> energy(k);
      const MatrixView<const float> rows(values.data(), n, k), factors(matrix.data(), k, d);
      const MatrixView<float> sketch(out.data(), n, d);
      const auto keep = [&] { all.insert(all.end(), out.begin(), out.end()); };
      project(rows, factors, 0.5f, sketch, n_threads);
      keep();
      project_signs(rows, 5, 0.5f, sketch, n_threads);
      keep();
      project_subspace(rows, 5, 2, 0.5f, sketch, n_threads);
      keep();
      take_columns(rows, columns, scale, sketch, n_threads);
      keep();
      csr_product({n, indptr.data(), indices.data(), stored.data()}, factors, sketch, n_threads);
      keep();
      count_sketch(rows, 5, 0.5f, sketch, n_threads);
      const std::vector<float> dense = out;
      const auto n_entries = static_cast<int64_t>(indices.size());
      count_sketch(make_sparse_rows(indptr.data(), indices.data(), stored.data(), n, n_entries, k,
                                    n_threads),
                   5, 0.5f, sketch, n_threads);
      CHECK(out == dense);
      row_means(rows, means, n_threads);
      all.insert(all.end(), means.begin(), means.end());
      column_energy(rows, energy, n_threads);
      for (double e : energy) all.push_back(static_cast<float>(e));
      if (n_threads == 1) {
        first = all;
        note("sketches", all);
      }
      CHECK(all == first);
    }
  }
}

}  // namespace polyleaf::tests
