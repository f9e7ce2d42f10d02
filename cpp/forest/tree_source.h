// Source of trees that a forest does not store itself, for example the arrays of a file; trees are
// rarely requested after loading.
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
  // Write tree t into `tree`, reusing its memory. Throws std::invalid_argument unless
  // `check_tree` accepts it.
  virtual void read(int32_t t, Tree& tree) const = 0;
  virtual std::shared_ptr<const LeafBlock> leaves(int32_t t) const = 0;
  virtual int32_t output(int32_t t) const = 0;  // output of tree t; -1: all

 protected:
  TreeSource() = default;
};

}  // namespace polyleaf
