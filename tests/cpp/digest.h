// Digests of results, which are the same on every system: `polyleaf_core_tests --digest` prints
// them and digest.txt holds them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace polyleaf::tests {

// FNV-1a of 64 bits.
class Digest {
 public:
  void add(const void* data, size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < size; ++i) value_ = (value_ ^ bytes[i]) * 1099511628211u;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 14695981039346656037u;
};

// The digests by name.
inline std::map<std::string, Digest>& digests() {
  static std::map<std::string, Digest> all;
  return all;
}

// Add numbers to the digest of this name.
template <class T>
void note(const std::string& name, const std::vector<T>& numbers) {
  static_assert(std::is_arithmetic_v<T>);
  digests()[name].add(numbers.data(), numbers.size() * sizeof(T));
}

}  // namespace polyleaf::tests
