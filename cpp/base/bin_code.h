// Feature codes of trees and models: 0 .. 254 are bins or categories, 255 is missing.
#pragma once
#include <array>
#include <cstdint>

namespace polyleaf {

constexpr int kMissingCode = 255;
constexpr int kMaxBins = kMissingCode;  // value codes of a feature are below

using CategorySet = std::array<uint64_t, 4>;  // bit c: code c goes left

inline bool contains(const CategorySet& set, int code) {
  return (set[code >> 6] >> (code & 63)) & 1;
}

}  // namespace polyleaf
