// Moving a node's rows to its children: the words of all tiles and the row ids stay contiguous per node and
// keep their order (stable), so the result does not depend on how rows are cut into blocks.
#pragma once
#include <cstdint>

#include "isa.h"

namespace polyleaf {

// Where one code of a tile's slot goes. Numeric: left when ((code + offset) & mask) <= threshold, which with
// offset 1 wraps the missing code (the largest) to zero: no branch for missing values.
struct Route {
  int slot = 0;
  int offset = 0;
  int mask = 255;
  int threshold = 0;
  const uint64_t* set = nullptr;  // categorical: 256 bits over the tile's codes
};

struct PartitionKernels {
  // bits[i / 8] bit i % 8: row i goes left. Returns how many do. Writes (n + 7) / 8 bytes.
  int64_t (*decide)(const uint64_t* words, int64_t n, const Route& route, uint8_t* bits);
  void (*move_words)(const uint64_t* from, const uint8_t* bits, int64_t n, uint64_t* left, int64_t n_left,
                     uint64_t* right);
  void (*move_ids)(const uint32_t* from, const uint8_t* bits, int64_t n, uint32_t* left, int64_t n_left,
                   uint32_t* right);
  // The same for row ids first, first + 1, ... that were never written down.
  void (*number_ids)(uint32_t first, const uint8_t* bits, int64_t n, uint32_t* left, int64_t n_left,
                     uint32_t* right);
  // out[i] = words[ids[i]]
  void (*gather_words)(const uint64_t* words, const uint32_t* ids, int64_t n, uint64_t* out);
};
POLYLEAF_DECLARE_KERNELS(PartitionKernels, partition_kernels)

}  // namespace polyleaf
