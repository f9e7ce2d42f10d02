// The k largest of terms that are offered one by one, and their sum in descending order: the score
// of a leaf that keeps k outputs (GBDT-MO, eq. 20 to 22). V is a float, or a vector of sixteen
// candidates.
#pragma once
#include "base/kernels/lanes.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

template <class V, class Storage = V*>
struct LargestTerms {
  Storage best;  // k entries, descending
  int k;
  int n = 0;

  POLYLEAF_INLINE_MEMBER void offer(V v) {
    if (n == k && !any_above(v, best[k - 1])) return;
    for (int i = 0; i < n; ++i) {
      const V current = best[i];
      best[i] = max(current, v);
      v = select(current > v, v, current);
    }
    if (n < k) best[n++] = v;
  }
  POLYLEAF_INLINE_MEMBER V sum() const {
    V total = best[0];
    for (int i = 1; i < n; ++i) total = total + best[i];
    return total;
  }
};

}  // namespace POLYLEAF_ISA_NAMESPACE
}  // namespace polyleaf
