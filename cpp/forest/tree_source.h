// Where a forest finds trees that it does not hold as such: flat arrays of a file, say, of which
// few who predict ever want to see a tree.
//
// Owns: what a forest asks of it. Must not know: forests, files.
#pragma once
#include <cstdint>
#include <memory>

#include "grower/tree.h"
#include "leaves/leaf_block.h"

namespace polyleaf {

class TreeSource {
 public:
  virtual ~TreeSource() = default;
  TreeSource(const TreeSource&) = delete;
  TreeSource& operator=(const TreeSource&) = delete;

  virtual int32_t n_trees() const = 0;
  // Writes tree t in the place of another, whose memory is used again. Throws std::invalid_argument
  // unless it is one that `check_tree` lets pass.
  virtual void read(int32_t t, Tree& tree) const = 0;
  virtual std::shared_ptr<const LeafBlock> leaves(int32_t t) const = 0;
  virtual int32_t output(int32_t t) const = 0;  // -1: all

 protected:
  TreeSource() = default;
};

}  // namespace polyleaf
