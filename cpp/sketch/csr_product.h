// Sparse rows times a dense matrix, for projections of sparse features.
//
// out (n, d) = rows (n, m) in CSR form @ matrix (m, d), float32. Terms are added in storage order,
// in runs of 256 whose sums are then added, so long rows keep their digits: the same bits for any
// number of threads and any instruction set.
#pragma once
#include <cstdint>

#include "base/context.h"
#include "base/isa.h"

namespace polyleaf {

struct CsrMatrix {
  int64_t n_rows;
  const int64_t* indptr;   // n_rows + 1
  const int32_t* indices;  // columns, each in [0, m)
  const float* values;
};

void csr_product(const CsrMatrix& rows, const float* matrix, int32_t d, float* out,
                 const Context& context);

struct CsrProductKernels {
  void (*product)(const CsrMatrix& rows, int64_t begin, int64_t end, const float* matrix, int32_t d,
                  float* out);
};
POLYLEAF_DECLARE_KERNELS(CsrProductKernels, csr_product_kernels)

}  // namespace polyleaf
