#include "search/gradient_source.h"

#include <algorithm>

#include "base/parallel.h"
#include "search/packed_histogram.h"

namespace polyleaf {
namespace {

constexpr int64_t kBlockRows = 2048;  // rows per task

}  // namespace

CategoricalOverfit FixedGradients::categorical_overfit() const {
  return estimate_categorical_overfit({&layout(), totals().data(), channels_->n_used(),
                                       channels_->gradient_step(), channels_->hessian_step()},
                                      sum_squares(layout(), channels_->row(0), sample(), context_));
}

// Gather the channels once; they are read once per tile.
void FixedGradients::fill(std::vector<Request>& requests) {
  const int lanes = layout().lanes;
  struct RowBlock {
    const uint32_t* ids;
    int64_t n, to;
  };
  std::vector<RowBlock> blocks;
  std::vector<int64_t> start(requests.size(), -1);
  int64_t total = 0;
  for (size_t j = 0; j < requests.size(); ++j) {
    const RowRange& rows = requests[j].rows;
    const uint32_t* ids = partition_->ids(rows);
    if (ids == nullptr) {
      requests[j].channels = channels_->row(rows.begin);
      continue;
    }
    start[j] = total;
    for (int64_t b = 0; b < rows.size(); b += kBlockRows) {
      const int64_t n = std::min(kBlockRows, rows.size() - b);
      blocks.push_back({ids + b, n, total});
      total += n;
    }
  }
  gathered_.reserve(static_cast<size_t>(total) * lanes + 64);
  const HistogramKernels& kernels = POLYLEAF_SELECT(histogram_kernels);
  const Context context = context_.limit_operations(total * lanes);
  parallel_for(context, static_cast<int64_t>(blocks.size()), [&](int64_t task, int) {
    const RowBlock& block = blocks[task];
    kernels.gather(channels_->row(0), block.ids, block.n, lanes,
                   gathered_.data() + block.to * lanes);
  });
  for (size_t j = 0; j < requests.size(); ++j)
    if (start[j] >= 0) requests[j].channels = gathered_.data() + start[j] * lanes;
}

}  // namespace polyleaf
