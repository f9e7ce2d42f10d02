#include "leaves/leaf_block.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kBlock = 16384;

}  // namespace

void check_leaf_ids(const int32_t* leaf_of_row, int64_t n, int32_t n_leaves,
                    const Context& context) {
  std::atomic<bool> bad{false};
  parallel_for(context, Block::count(n, kBlock), [&](int64_t task, int) {
    const Block rows(n, kBlock, task);
    uint32_t largest = 0;  // a negative id becomes a large unsigned number
    for (int64_t i = rows.begin; i < rows.end; ++i)
      largest = std::max(largest, static_cast<uint32_t>(leaf_of_row[i]));
    if (largest >= static_cast<uint32_t>(n_leaves)) bad = true;
  });
  if (bad) throw std::invalid_argument("A leaf id is out of range.");
}

void check_features(const FeatureMatrix& features, int32_t n_features, int64_t n_rows) {
  if (n_features == 0) return;
  if (features.data == nullptr)
    throw std::invalid_argument(
        "Linear leaves read the raw features; pass them as `features`, float32 (n_features, "
        "n_rows).");
  if (features.n_features < n_features || features.n_rows != n_rows)
    throw std::invalid_argument("`features` has shape (" + std::to_string(features.n_features) +
                                ", " + std::to_string(features.n_rows) +
                                "), but the linear leaves read " + std::to_string(n_features) +
                                " features of " + std::to_string(n_rows) + " rows.");
}

void add_leaf_values(float* raw, int64_t n, int64_t n_outputs, int32_t output,
                     const int32_t* leaf_of_row, const LeafView& view,
                     const FeatureMatrix& features, const Context& context) {
  const uint32_t* leaves = reinterpret_cast<const uint32_t*>(leaf_of_row);
  const AddLeaves add = view.kind->adder();
  raw += std::max(output, 0);
  parallel_for(context, Block::count(n, kBlock), [&](int64_t task, int) {
    const Block rows(n, kBlock, task);
    add(view, leaves + rows.begin, rows.end - rows.begin, features.from_row(rows.begin),
        raw + rows.begin * n_outputs, n_outputs);
  });
}

}  // namespace polyleaf
