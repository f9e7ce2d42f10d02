// A CUDA driver without a GPU: the entry points that polyleaf uses, over kernels compiled for the
// host. New device memory is poisoned and surrounded by guard bytes. The loaded module is ignored:
// the kernels are compiled in.
#include <ucontext.h>

#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda_on_host.h"

dim3 gridDim, blockDim, blockIdx, threadIdx;

#include "device/kernels/all.cu"

namespace cuda_on_host {
namespace {

constexpr size_t kStack = 64 << 10, kGuard = 64, kMostShared = 227 << 10;
alignas(128) unsigned char dynamic[kMostShared + kGuard];

struct Fibre {
  ucontext_t begin;
  jmp_buf at;
  std::unique_ptr<char[]> stack;
  bool started = false, done = true;
};
std::vector<std::unique_ptr<Fibre>> fibres;
size_t current;
jmp_buf block;
const std::function<void()>* body;

void run_thread() {
  (*body)();
  fibres[current]->done = true;
  _longjmp(block, 1);
}

void resume(size_t t) {
  current = t;
  threadIdx = {static_cast<unsigned>(t), 0, 0};
  Fibre& fibre = *fibres[t];
  if (_setjmp(block) != 0) return;
  if (fibre.started) _longjmp(fibre.at, 1);
  fibre.started = true;
  setcontext(&fibre.begin);
}

void run_block(size_t n_threads) {
  while (fibres.size() < n_threads) {
    fibres.push_back(std::make_unique<Fibre>());
    fibres.back()->stack = std::make_unique<char[]>(kStack);
  }
  for (size_t t = 0; t < n_threads; ++t) {
    Fibre& fibre = *fibres[t];
    fibre.started = fibre.done = false;
    getcontext(&fibre.begin);
    fibre.begin.uc_stack.ss_sp = fibre.stack.get();
    fibre.begin.uc_stack.ss_size = kStack;
    fibre.begin.uc_link = nullptr;
    makecontext(&fibre.begin, run_thread, 0);
  }
  for (bool any = true; any;) {  // from one barrier to the next
    any = false;
    for (size_t t = 0; t < n_threads; ++t)
      if (!fibres[t]->done) {
        resume(t);
        any = true;
      }
  }
}

// Return the kernels by name.
std::map<std::string, std::function<void(const void*)>> kernels() {
  std::map<std::string, std::function<void(const void*)>> found;
  const auto add = [&]<class Record>(void (*kernel)(Record)) {
    using R = std::remove_const_t<Record>;
    found[R::kName] = [kernel](const void* record) { kernel(*static_cast<const R*>(record)); };
  };
  add(::add_sparse);
  add(::add_leaves);
  add(::best_of_nodes);
  add(::build_histograms);
  add(::count_left);
  add(::derivatives);
  add(::find_codes);
  add(::find_infinity);
  add(::gather_rows);
  add(::compute_max_magnitudes);
  add(::move_rows);
  add(::assign_leaf_ids);
  add(::pack_codes);
  add(::place_pieces);
  add(::project);
  add(::predict_trees);
  add(::quantise);
  add(::sum_squares);
  add(::route_rows);
  add(::row_means);
  add(::scan_topk);
  add(::scan_numeric);
  add(::scan_monotone);
  add(::scan_solved);
  add(::scores_of_sums);
  add(::softmax_derivatives);
  add(::subtract_histograms);
  add(::sum_leaves);
  add(::sum_nodes);
  add(::take_column);
  return found;
}

struct Memory {
  std::unique_ptr<unsigned char[]> bytes;
  size_t size;
};
std::map<unsigned long long, Memory> memory;
size_t in_use = 0, limit = 0;

}  // namespace

void wait_for_block() {
  if (_setjmp(fibres[current]->at) == 0) _longjmp(block, 1);
}

}  // namespace cuda_on_host

void* polyleaf_dynamic() {
  return cuda_on_host::dynamic;
}

using namespace cuda_on_host;

using Result = int;
using Address = unsigned long long;
constexpr Result kInvalid = 1, kOutOfMemory = 2, kNotFound = 500;

extern "C" {

Result cuInit(unsigned) {
  const char* const most = std::getenv("POLYLEAF_DRIVER_ON_HOST_MEMORY");  // bytes
  limit = most != nullptr ? std::strtoull(most, nullptr, 10) : size_t{4} << 30;
  return 0;
}
Result cuDriverGetVersion(int* version) {
  *version = 12090;
  return 0;
}
Result cuDeviceGetCount(int* n) {
  *n = 1;
  return 0;
}
Result cuDeviceGet(int* device, int ordinal) {
  *device = 0;
  return ordinal == 0 ? 0 : kInvalid;
}
Result cuDeviceGetName(char* name, int size, int) {
  std::strncpy(name, "this machine, as a device", static_cast<size_t>(size));
  return 0;
}
Result cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75   ? 9
           : attribute == 76 ? 0
           : attribute == 16 ? 2
           : attribute == 39 ? 2048
           : attribute == 81 ? 2 * kMostShared
           : attribute == 97 ? kMostShared
                             : 0;
  return 0;
}
Result cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &memory;
  return 0;
}
Result cuDevicePrimaryCtxRelease_v2(int) {
  return 0;
}
Result cuCtxPushCurrent_v2(void*) {
  return 0;
}
Result cuCtxPopCurrent_v2(void**) {
  return 0;
}
Result cuStreamCreate(void** stream, unsigned) {
  *stream = &memory;
  return 0;
}
Result cuStreamDestroy_v2(void*) {
  return 0;
}
Result cuStreamSynchronize(void*) {
  return 0;
}
Result cuModuleLoadData(void** module, const void*) {
  *module = &memory;
  return 0;
}
Result cuModuleUnload(void*) {
  return 0;
}
Result cuModuleGetFunction(void** function, void*, const char* name) {
  static auto known = kernels();
  const auto found = known.find(name);
  if (found == known.end()) return kNotFound;
  *function = &found->second;
  return 0;
}
Result cuFuncGetAttribute(int* value, int, void*) {
  *value = 0;
  return 0;
}
Result cuFuncSetAttribute(void*, int, int) {
  return 0;
}
Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = limit - in_use;
  *total = limit;
  return 0;
}
Result cuMemAlloc_v2(Address* address, size_t size) {
  if (in_use + size > limit) return kOutOfMemory;
  Memory block{std::make_unique<unsigned char[]>(size + 2 * kGuard), size};
  std::memset(block.bytes.get(), 0xA5, size + 2 * kGuard);
  *address = reinterpret_cast<Address>(block.bytes.get() + kGuard);
  in_use += size;
  memory[*address] = std::move(block);
  return 0;
}
Result cuMemFree_v2(Address address) {
  const auto found = memory.find(address);
  if (found == memory.end()) return kInvalid;
  const Memory& block = found->second;
  for (size_t i = 0; i < kGuard; ++i)
    if (block.bytes[i] != 0xA5 || block.bytes[kGuard + block.size + i] != 0xA5) std::abort();
  in_use -= block.size;
  memory.erase(found);
  return 0;
}
Result cuMemAllocHost_v2(void** at, size_t size) {
  *at = std::malloc(size);
  return 0;
}
Result cuMemFreeHost(void* at) {
  std::free(at);
  return 0;
}
Result cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t size, void*) {
  std::memcpy(reinterpret_cast<void*>(to), from, size);
  return 0;
}
Result cuMemcpyDtoHAsync_v2(void* to, Address from, size_t size, void*) {
  std::memcpy(to, reinterpret_cast<const void*>(from), size);
  return 0;
}
Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t size, void*) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), size);
  return 0;
}
Result cuMemsetD8Async(Address to, unsigned char value, size_t size, void*) {
  std::memset(reinterpret_cast<void*>(to), value, size);
  return 0;
}
// Host memory counts as device memory; small addresses are invalid.
Result cuPointerGetAttribute(void* value, int attribute, Address address) {
  if (attribute != 9 || address < 4096) return kInvalid;
  *static_cast<int*>(value) = 0;
  return 0;
}
Result cuGetErrorString(Result, const char** sentence) {
  *sentence = "an error of the driver on this machine";
  return 0;
}
Result cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                      unsigned by, unsigned bz, unsigned shared, void*, void** arguments, void**) {
  if (shared > kMostShared || by * bz != 1 || bx > 1024 || gx * gy * gz == 0) return kInvalid;
  const auto& kernel = *static_cast<std::function<void(const void*)>*>(function);
  const std::function<void()> once = [&] { kernel(arguments[0]); };
  body = &once;
  gridDim = {gx, gy, gz};
  blockDim = {bx, by, bz};
  std::memset(dynamic, 0xA5, sizeof(dynamic));
  for (unsigned z = 0; z < gz; ++z)
    for (unsigned y = 0; y < gy; ++y)
      for (unsigned x = 0; x < gx; ++x) {
        blockIdx = {x, y, z};
        run_block(bx);
        for (size_t i = shared; i < shared + kGuard; ++i)
          if (dynamic[i] != 0xA5) std::abort();
      }
  return 0;
}

}  // extern "C"
