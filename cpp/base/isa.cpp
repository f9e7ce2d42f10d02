#include "base/isa.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace polyleaf {
namespace {

#define POLYLEAF_QUOTE_ISA(isa) #isa,
constexpr const char* kIsaNames[] = {POLYLEAF_ISAS(POLYLEAF_QUOTE_ISA)};

// Whether this CPU has an instruction set.
bool has_baseline() {
  return true;
}
#ifdef POLYLEAF_X86
[[maybe_unused]] bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
}
[[maybe_unused]] bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd");
}
#endif
#define POLYLEAF_CPU_HAS(isa) &has_##isa,
constexpr bool (*kCpuHas[])() = {POLYLEAF_ISAS(POLYLEAF_CPU_HAS)};

Isa choose() {
  const std::vector<std::string> available = available_isas();
  const char* forced = std::getenv("POLYLEAF_ISA");
  if (forced == nullptr || *forced == '\0') return static_cast<Isa>(available.size() - 1);
  const auto found = std::find(available.begin(), available.end(), forced);
  if (found != available.end()) return static_cast<Isa>(found - available.begin());
  const std::string message = std::string("POLYLEAF_ISA=") + forced;
  std::string names;
  for (const char* name : kIsaNames) {
    if (std::string(name) == forced)
      throw std::invalid_argument(
          message + " is not supported by this CPU; unset it to use the best instruction set.");
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  throw std::invalid_argument(message + " is unknown or not in this build, which has " + names +
                              "; build with POLYLEAF_ISAS=all for every instruction set.");
}

}  // namespace

Isa active_isa() {
  static const Isa isa = choose();
  return isa;
}

const char* isa_name(Isa isa) {
  return kIsaNames[static_cast<size_t>(isa)];
}

// A CPU with one instruction set has all those that come before it.
std::vector<std::string> available_isas() {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::size(kIsaNames) && kCpuHas[i](); ++i)
    names.emplace_back(kIsaNames[i]);
  return names;
}

}  // namespace polyleaf
