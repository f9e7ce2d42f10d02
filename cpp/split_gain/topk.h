// The k largest of terms that are offered one by one, and their sum from the largest on: what a
// leaf is worth that keeps k outputs (GBDT-MO, eq. 20 to 22). V is a float, or a vector of sixteen
// candidates; where they lie is for the caller to say.
#pragma once
#include "base/kernels/lanes.h"

namespace polyleaf {
namespace POLYLEAF_ISA_NAMESPACE {

template <class V, class Room = V*>
struct LargestTerms {
  Room best;  // for k, descending
  int k;
  int n = 0;

  POLYLEAF_INLINE_MEMBER void offer(V v) {
    if (n == k && !any_above(v, best[k - 1])) return;
    for (int i = 0; i < n; ++i) {
      const V there = best[i];
      best[i] = max(there, v);
      v = select(there > v, v, there);
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
