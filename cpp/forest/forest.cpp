// Compiles trees into the flat arrays that the prediction kernels read (kernels/predict_kernels.h).
#include "forest/forest.h"

#include <algorithm>
#include <mutex>
#include <queue>
#include <stdexcept>
#include <string>

#include "leaves/leaf_block.h"

namespace polyleaf {

// Scratch memory of compiling a tree, reused for the next.
struct CompileScratch {
  std::vector<uint32_t> sets, positions;  // per node
  std::vector<int32_t> exits, top_position, order;
  std::vector<int> slots;
};

namespace {

// Inner nodes in the top of a tree with more than kMaxExits leaves. Evaluating one more level for
// every row costs as much as the whole top above it, while walking costs one step per row and
// level; this size balances both.
constexpr int kTopNodes = 127;

constexpr int32_t kFirstOutput = 0;

int get_shift(const Tree& tree, int32_t node) {
  return tree.category_set[node] < 0 && tree.missing_left[node];
}

// Return the last code that goes left, after the shift.
int get_cut(const Tree& tree, int32_t node) {
  return tree.category_set[node] < 0 ? tree.threshold[node] + get_shift(tree, node) : 0;
}

// Append a set for each categorical node; bit 255 is the missing code. rows: each node's set.
void write_sets(const Tree& tree, std::vector<CategorySet>& sets, std::vector<uint32_t>& rows) {
  rows.assign(tree.n_nodes(), kNumeric);
  for (int32_t i = 0; i < tree.n_nodes(); ++i) {
    if (tree.category_set[i] < 0) continue;
    rows[i] = static_cast<uint32_t>(sets.size());
    CategorySet set = tree.categories[tree.category_set[i]];
    const uint64_t missing = uint64_t{1} << 63;
    set[3] = tree.missing_left[i] ? set[3] | missing : set[3] & ~missing;
    sets.push_back(set);
  }
}

// Writes the top of one tree as a program in which a node comes after its children.
class TopWriter {
 public:
  TopWriter(const Tree& tree, std::vector<TopNode>& program, CompileScratch& scratch)
      : tree_(tree),
        sets_(scratch.sets),
        program_(program),
        exits_(scratch.exits),
        top_position_(scratch.top_position),
        order_(scratch.order),
        slots_(scratch.slots) {}

  void write(bool whole) {
    whole_ = whole;
    exits_.clear();
    order_.clear();
    top_position_.assign(tree_.n_nodes(), 0);
    if (whole)
      choose_all();
    else
      choose(kTopNodes);
    slots_.assign(order_.size(), 0);
    count_slots();
    if (!order_.empty()) emit(0);
  }

 private:
  void take(int32_t node) {
    order_.push_back(node);
    top_position_[node] = static_cast<int32_t>(order_.size());
  }

  void choose_all() {
    for (int32_t node = 0; node < tree_.n_nodes(); ++node)
      if (tree_.feature[node] >= 0) take(node);
  }

  // Choose up to `limit` inner nodes, those with the most training rows first, so that rows leave
  // the top late. order_ has parents before their children.
  void choose(size_t limit) {
    const auto less = [this](int32_t a, int32_t b) {
      return tree_.count[a] != tree_.count[b] ? tree_.count[a] < tree_.count[b] : a > b;
    };
    std::priority_queue<int32_t, std::vector<int32_t>, decltype(less)> open(less);
    if (tree_.feature[0] >= 0) open.push(0);
    while (!open.empty() && order_.size() < limit) {
      const int32_t node = open.top();
      open.pop();
      take(node);
      for (int32_t child : {tree_.left[node], tree_.right[node]})
        if (tree_.feature[child] >= 0) open.push(child);
    }
  }

  int& slots(int32_t node) { return slots_[top_position_[node] - 1]; }
  int slots_needed(int32_t node) { return top_position_[node] ? slots(node) : 0; }

  void count_slots() {
    for (size_t i = order_.size(); i-- > 0;) {
      const int left = slots_needed(tree_.left[order_[i]]),
                right = slots_needed(tree_.right[order_[i]]);
      slots_[i] = std::max(1, left == right ? left + 1 - (left == 0) : std::max(left, right));
    }
  }

  // Emit a node and return where its result will be.
  uint16_t emit(int32_t node) {
    if (!top_position_[node]) {
      if (whole_) return static_cast<uint16_t>(tree_.leaf[node]);
      exits_.push_back(node);
      return static_cast<uint16_t>(exits_.size() - 1);
    }
    int32_t left = tree_.left[node], right = tree_.right[node];
    const bool left_first = slots_needed(left) >= slots_needed(right);
    const uint16_t first = emit(left_first ? left : right);
    const uint16_t second = emit(left_first ? right : left);
    release(first);
    release(second);
    const uint16_t result = acquire();
    program_.push_back({static_cast<uint32_t>(tree_.feature[node]), sets_[node],
                        left_first ? first : second, left_first ? second : first, result,
                        static_cast<uint8_t>(get_cut(tree_, node)),
                        static_cast<uint8_t>(get_shift(tree_, node))});
    return result;
  }

  static constexpr int kSlotUnits = kBlockRows / 64;
  uint16_t acquire() {
    const int slot = static_cast<int>(std::find(used_.begin(), used_.end(), false) - used_.begin());
    if (slot == kMaxSlots)
      throw std::logic_error("The top of a tree needs more slots than there are.");
    used_[slot] = true;
    return static_cast<uint16_t>(kMaxExits + kSlotUnits * slot);
  }
  void release(uint16_t result) {
    if (result >= kMaxExits) used_[(result - kMaxExits) / kSlotUnits] = false;
  }

  const Tree& tree_;
  const std::vector<uint32_t>& sets_;
  std::vector<TopNode>& program_;
  std::vector<int32_t>& exits_;
  std::vector<int32_t>& top_position_;  // 1 + position in order_; 0: below the top, or a leaf
  std::vector<int32_t>& order_;
  std::vector<int>& slots_;
  std::array<bool, kMaxSlots> used_{};
  bool whole_ = false;
};

// Append the nodes to walk; position: position of each node of the tree.
void write_nodes(const Tree& tree, const std::vector<uint32_t>& sets, std::vector<WalkNode>& nodes,
                 std::vector<uint32_t>& node_data, std::vector<uint32_t>& position) {
  const int32_t n = tree.n_nodes();
  position.resize(n);
  uint32_t next = static_cast<uint32_t>(nodes.size());
  nodes.resize(next + n);
  node_data.resize(next + n);
  position[0] = next++;
  for (int32_t i = 0; i < n; ++i) {
    const uint32_t at = position[i];
    if (tree.feature[i] < 0) {
      nodes[at] = {at, 255};
      node_data[at] = static_cast<uint32_t>(tree.leaf[i]);
      continue;
    }
    const bool categorical = sets[i] != kNumeric;
    position[tree.left[i]] = next;
    position[tree.right[i]] = next + 1;
    nodes[at] = {next, static_cast<uint32_t>(tree.feature[i]) << 10 | uint32_t{categorical} << 9 |
                           static_cast<uint32_t>(get_shift(tree, i)) << 8 |
                           static_cast<uint32_t>(get_cut(tree, i))};
    node_data[at] = categorical ? sets[i] : 0;
    next += 2;
  }
}

void check_leaves(const Tree& tree, const LeafBlock& leaves, const OutputList& outputs,
                  int32_t n_outputs) {
  if (leaves.n_leaves() != tree.n_leaves)
    throw std::invalid_argument("The tree has " + std::to_string(tree.n_leaves) +
                                " leaves, but there are " + std::to_string(leaves.n_leaves()) +
                                " leaf values.");
  check_outputs(leaves.view(), leaves.n_leaves(), outputs, n_outputs);
}

}  // namespace

const Forest::Entry Forest::kNoEntry{nullptr, nullptr, -1, nullptr, nullptr, 0, 0, 0, 0, 0, 0};

Forest::Forest(int32_t n_outputs)
    : n_outputs_(n_outputs), width_(static_cast<int32_t>(padded_columns(n_outputs))) {
  if (n_outputs < 1) throw std::invalid_argument("A forest needs at least one output.");
}

void Forest::append(std::shared_ptr<const Tree> tree, std::shared_ptr<const LeafBlock> leaves,
                    const OutputList& outputs) {
  Entry entry = kNoEntry;
  entry.leaves = std::move(leaves);
  entry.outputs = keep(outputs);
  entry.tree = std::move(tree);
  const Tree& to_compile = *entry.tree;
  CompileScratch scratch;
  add(to_compile, std::move(entry), scratch);
}

void Forest::extend(const std::shared_ptr<const TreeSource>& source) {
  {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    const size_t n = entries_.size() + source->n_trees();
    entries_.reserve(n);
    compiled_.reserve(n);
    targets_.reserve(n);
  }
  Tree tree;
  CompileScratch scratch;
  for (int32_t t = 0; t < source->n_trees(); ++t) {
    source->read(t, tree);
    Entry entry = kNoEntry;
    entry.source = source;
    entry.place = t;
    entry.leaves = source->leaves(t);
    entry.outputs = keep(source->outputs(t));
    add(tree, std::move(entry), scratch);
  }
}

const OutputList* Forest::keep(OutputList outputs) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  return &*output_lists_.insert(std::move(outputs)).first;
}

std::shared_ptr<const Tree> Forest::tree(int32_t t) const {
  const Entry& entry = entries_.at(t);
  if (entry.tree) return entry.tree;
  auto tree = std::make_shared<Tree>();
  entry.source->read(entry.place, *tree);
  check_leaves(*tree, *entry.leaves, *entry.outputs, n_outputs_);
  return tree;
}

void Forest::add(const Tree& tree, Entry entry, CompileScratch& scratch) {
  check_leaves(tree, *entry.leaves, *entry.outputs, n_outputs_);
  const int32_t n_features = 1 + *std::max_element(tree.feature.begin(), tree.feature.end());
  if (static_cast<uint32_t>(n_features) > kMaxFeatures)
    throw std::invalid_argument("The tree splits on feature " + std::to_string(n_features - 1) +
                                "; a forest can read the first 4194304 features only.");

  std::unique_lock<std::shared_mutex> lock(mutex_);
  if (nodes_.size() + tree.n_nodes() > size_t{1} << 31)
    throw std::invalid_argument("The forest would have more than 2^31 nodes.");
  CompiledTree compiled{};
  compiled.root = static_cast<uint32_t>(nodes_.size());
  compiled.top_begin = static_cast<uint32_t>(tops_.size());
  compiled.exit_begin = static_cast<uint32_t>(exits_.size());
  compiled.whole = tree.n_leaves <= kMaxExits;

  write_sets(tree, sets_, scratch.sets);
  compiled.has_categories = std::any_of(scratch.sets.begin(), scratch.sets.end(),
                                        [](uint32_t s) { return s != kNumeric; });
  write_nodes(tree, scratch.sets, nodes_, node_data_, scratch.positions);
  TopWriter(tree, tops_, scratch).write(compiled.whole);
  for (int32_t node : scratch.exits) exits_.push_back(scratch.positions[node]);
  compiled.n_top = static_cast<uint32_t>(tops_.size()) - compiled.top_begin;

  const LeafBlock& leaves = *entry.leaves;
  const int32_t* outputs = nullptr;
  if (!leaves.kind().lists_outputs && !entry.outputs->empty())
    outputs = entry.outputs->data();
  else if (!leaves.kind().lists_outputs && n_outputs_ == 1)
    outputs = &kFirstOutput;  // with one output a vector is a number
  targets_.push_back({&leaves.view(), outputs});
  const Entry& last = entries_.empty() ? kNoEntry : entries_.back();
  entry.n_features = std::max(n_features, last.n_features);
  entry.n_regressors = std::max(leaves.n_features(), last.n_regressors);
  entry.nodes_end = nodes_.size();
  entry.tops_end = tops_.size();
  entry.exits_end = exits_.size();
  entry.sets_end = sets_.size();
  entries_.push_back(std::move(entry));
  compiled_.push_back(compiled);
}

void Forest::truncate(int32_t n_trees) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  if (n_trees < 0 || n_trees > this->n_trees())
    throw std::invalid_argument("Cannot keep " + std::to_string(n_trees) +
                                " trees of a forest that has " + std::to_string(this->n_trees()) +
                                ".");
  const Entry& last = n_trees == 0 ? kNoEntry : entries_[n_trees - 1];
  nodes_.resize(last.nodes_end);
  node_data_.resize(last.nodes_end);
  tops_.resize(last.tops_end);
  exits_.resize(last.exits_end);
  sets_.resize(last.sets_end);
  entries_.erase(entries_.begin() + n_trees, entries_.end());
  compiled_.resize(n_trees);
  targets_.resize(n_trees);
}

std::vector<ForestPart> Forest::parts(TreeRange range) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  check(range);
  std::vector<ForestPart> all;
  for (int32_t t = range.first; t < range.last; ++t)
    all.push_back({tree(t), entries_[t].leaves, *entries_[t].outputs});
  return all;
}

ForestArrays Forest::arrays() const {
  return {nodes_.data(), node_data_.data(), tops_.data(), exits_.data(),
          sets_.empty() ? nullptr : sets_.front().data()};
}

}  // namespace polyleaf
