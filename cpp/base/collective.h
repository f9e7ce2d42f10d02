// Exchange of lists between ranks. Every rank has the same number of lists; their lengths differ
// between ranks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "base/context.h"

namespace polyleaf {

template <class T>
using Lists = std::vector<std::vector<T>>;

// Return the sizes of the lists, then their entries.
template <class T>
std::vector<std::byte> packed_lists(const Lists<T>& lists) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<int64_t> sizes;
  int64_t n = 0;
  for (const std::vector<T>& list : lists) {
    sizes.push_back(static_cast<int64_t>(list.size()));
    n += sizes.back();
  }
  const size_t head = sizeof(int64_t) * sizes.size();
  std::vector<std::byte> packed(head + sizeof(T) * static_cast<size_t>(n));
  if (head > 0) std::memcpy(packed.data(), sizes.data(), head);
  size_t at = head;
  for (const std::vector<T>& list : lists) {
    if (!list.empty()) std::memcpy(packed.data() + at, list.data(), sizeof(T) * list.size());
    at += sizeof(T) * list.size();
  }
  return packed;
}

// Append packed lists of another rank to the lists.
template <class T>
void append_packed(std::span<const std::byte> packed, Lists<T>& lists) {
  const auto take = [&](auto& into, size_t from, size_t n) {
    using Entry = std::remove_reference_t<decltype(into[0])>;
    if (n > packed.size() / sizeof(Entry))
      throw std::runtime_error("Ranks are out of sync: they have sent different numbers of lists.");
    into.resize(from + n);
    if (n > 0) std::memcpy(into.data() + from, packed.data(), n * sizeof(Entry));
    packed = packed.subspan(n * sizeof(Entry));
  };
  std::vector<int64_t> sizes;
  take(sizes, 0, lists.size());
  for (size_t i = 0; i < lists.size(); ++i)
    take(lists[i], lists[i].size(), static_cast<size_t>(sizes[i]));
}

// Replace every list by those of all ranks, in order of rank.
template <class T>
void allgather_lists(const Context& context, Lists<T>& lists) {
  if (!context.is_distributed()) return;
  const std::vector<std::vector<std::byte>> all =
      context.communicator->allgather(packed_lists(lists));
  for (std::vector<T>& list : lists) list.clear();
  for (const std::vector<std::byte>& packed : all) append_packed<T>(packed, lists);
}

// Send for_ranks[r] to rank r; return the lists that all ranks have sent to this one, in order of
// rank.
template <class T>
Lists<T> alltoall_lists(const Context& context, std::vector<Lists<T>>& for_ranks) {
  std::vector<Communicator::Block> blocks;
  Lists<T> found(for_ranks[0].size());
  for (Lists<T>& lists : for_ranks) {
    const auto packed = std::make_shared<std::vector<std::byte>>(packed_lists(lists));
    blocks.push_back({*packed, packed});
    Lists<T>().swap(lists);
  }
  for (const Communicator::Block& block : context.communicator->alltoall(blocks))
    append_packed<T>(block.bytes, found);
  return found;
}

}  // namespace polyleaf
