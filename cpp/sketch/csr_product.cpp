#include "sketch/csr_product.h"

#include <algorithm>

#include "base/parallel.h"

namespace polyleaf {
namespace {

constexpr int64_t kBlock = 64;  // rows per task; rows of a transposed matrix may differ in length

}  // namespace

void csr_product(const CsrMatrix& rows, const float* matrix, int32_t d, float* out,
                 const Context& context) {
  parallel_for(context, Block::count(rows.n_rows, kBlock), [&](int64_t task, int) {
    const Block block(rows.n_rows, kBlock, task);
    POLYLEAF_SELECT(csr_product_kernels).product(rows, block.begin, block.end, matrix, d, out);
  });
}

}  // namespace polyleaf
