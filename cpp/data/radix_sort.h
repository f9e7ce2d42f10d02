// Radix sort of numbers by keys: unsigned integers of the same order.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace polyleaf {

template <class T>
using KeyOf = std::conditional_t<std::is_same_v<T, float>, uint32_t, uint64_t>;

// Map numbers to unsigned integers of the same order; -0 becomes +0.
template <class T>
KeyOf<T> to_key(T value) {
  using Key = KeyOf<T>;
  constexpr Key sign = Key{1} << (8 * sizeof(Key) - 1);
  const Key bits = __builtin_bit_cast(Key, value + T{0});
  return bits & sign ? ~bits : bits | sign;
}

template <class T>
T from_key(KeyOf<T> key) {
  using Key = KeyOf<T>;
  constexpr Key sign = Key{1} << (8 * sizeof(Key) - 1);
  return __builtin_bit_cast(T, key & sign ? key & ~sign : ~key);
}

template <class Key>
struct WeightedKey {
  Key key;
  int64_t weight;
};

template <class Key>
Key get_key(Key item) {
  return item;
}
template <class Key>
Key get_key(const WeightedKey<Key>& item) {
  return item.key;
}

// Radix sort, least significant digit first; digits that all items share are skipped. The order of
// items with equal keys is not specified.
// Return the sorted items: `items` or `scratch`, which has room for n.
template <class Item>
Item* sort_by_key(Item* items, Item* scratch, size_t n) {
  using Key = decltype(get_key(items[0]));
  constexpr int kBits = 11, kBuckets = 1 << kBits;
  constexpr int kDigits = (8 * sizeof(Key) + kBits - 1) / kBits;
  if (n < kBuckets) {
    std::sort(items, items + n,
              [](const Item& a, const Item& b) { return get_key(a) < get_key(b); });
    return items;
  }
  std::vector<uint32_t> counts(kDigits * kBuckets, 0);
  for (size_t i = 0; i < n; ++i)
    for (int d = 0; d < kDigits; ++d)
      ++counts[d * kBuckets + ((get_key(items[i]) >> (d * kBits)) & (kBuckets - 1))];
  for (int d = 0; d < kDigits; ++d) {
    uint32_t* next = &counts[d * kBuckets];
    if (next[(get_key(items[0]) >> (d * kBits)) & (kBuckets - 1)] == n) continue;
    uint32_t sum = 0;
    for (int b = 0; b < kBuckets; ++b) {
      const uint32_t count = next[b];
      next[b] = sum;
      sum += count;
    }
    for (size_t i = 0; i < n; ++i)
      scratch[next[(get_key(items[i]) >> (d * kBits)) & (kBuckets - 1)]++] = items[i];
    std::swap(items, scratch);
  }
  return items;
}

}  // namespace polyleaf
