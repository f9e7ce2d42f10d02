// Counter-based random numbers: a hash of (seed, node, feature), so that draws do not depend on the
// order of work.
#pragma once
#include <cstdint>

namespace polyleaf {

// The finaliser of splitmix64 (Steele, Lea, Flood 2014). Static: every instruction set has its own
// copy.
static inline uint64_t hash(uint64_t seed, uint64_t a, uint64_t b) {
  uint64_t z = seed + 0x9E3779B97F4A7C15ull * (a + 1) + 0xD1B54A32D192ED03ull * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// Hash an id below 2^32: twice a key and the finaliser of MurmurHash3, a bijection.
static inline uint32_t hash_id(uint32_t id, const uint32_t* keys) {
  for (int i = 0; i < 2; ++i) {
    id ^= keys[i];
    id = (id ^ (id >> 16)) * 0x85EBCA6Bu;
    id = (id ^ (id >> 13)) * 0xC2B2AE35u;
    id ^= id >> 16;
  }
  return id;
}

}  // namespace polyleaf
